# The server as an image: not root, and with nothing to write but /data. See docs/guides/installing.md.
#
#   docker build --build-arg SOURCE_COMMIT=$(git rev-parse HEAD) -t waypost .
#   docker run -p 8080:8080 -v waypost:/data --read-only waypost

# The commit, which becomes part of the version. Empty for a release: --build-arg SOURCE_COMMIT=
ARG SOURCE_COMMIT=unknown

FROM node:24-bookworm-slim AS build
ARG SOURCE_COMMIT
WORKDIR /src
COPY package.json package-lock.json .npmrc ./
RUN npm ci --no-audit --no-fund
COPY . .
RUN SOURCE_COMMIT=$SOURCE_COMMIT node scripts/build/main.ts /app && mkdir /data

FROM node:24-bookworm-slim
COPY --from=build /app /app
COPY --from=build --chown=10001:10001 --chmod=700 /data /data
ARG SOURCE_COMMIT
LABEL org.opencontainers.image.revision=$SOURCE_COMMIT
ENV NODE_ENV=production \
    WAYPOST_DATA=/data \
    WAYPOST_HOST=0.0.0.0
USER 10001:10001
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["node", "/app/launch/waypost.js", "health"]
ENTRYPOINT ["node", "/app/launch/waypost.js"]
CMD ["start"]
