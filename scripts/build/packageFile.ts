/** Returns the package.json of the npm package, made from that of the project. */
export function makePackageFile(root: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const taken = [
    ...["name", "version", "description", "keywords", "homepage", "bugs", "repository", "license", "author"],
    ...["type", "engines"],
  ];
  return {
    ...Object.fromEntries(taken.map((name) => [name, root[name]])),
    bin: { waypost: "launch/waypost.js" },
    exports: {
      ".": { types: "./launch/startServer.d.ts", default: "./launch/startServer.js" },
      "./workflow": { types: "./launch/workflow.d.ts", default: "./launch/workflow.js" },
      "./package.json": "./package.json",
    },
    files: ["launch", "server", "NOTICE", "CHANGELOG.md", "THIRD-PARTY-LICENSES.txt"],
    // Everything else is in the bundle.
    optionalDependencies: Object.fromEntries(
      Object.entries(root["optionalDependencies"] as Record<string, string>).filter(([name]) =>
        name.startsWith("node-"),
      ),
    ),
  };
}
