import type { Built } from './built-programs.ts';

/** The releases that Debian does not have, and the version of each that is built. */
export const builtVersions = { '2.0': '2.0.14', '2.2': '2.2.9', '2.3': '2.3.7', '2.4': '2.4.2' } as const;
export type BuiltRelease = keyof typeof builtVersions;
export const builtReleases = Object.keys(builtVersions) as BuiltRelease[];

export const containerdPath = 'github.com/containerd/containerd/v2';

/** containerd of a release, its shim and ctr. */
export const builtContainerd = (release: BuiltRelease): Built => ({
  name: `containerd-${release}`,
  modules: [
    {
      path: containerdPath,
      version: `v${builtVersions[release]}`,
      linking: `-X ${containerdPath}/version.Version=${builtVersions[release]}`,
      programs: {
        containerd: './cmd/containerd',
        'containerd-shim-runc-v2': './cmd/containerd-shim-runc-v2',
        ctr: './cmd/ctr',
      },
    },
  ],
  what: `containerd ${builtVersions[release]}`,
  time: 'two to five minutes',
});
