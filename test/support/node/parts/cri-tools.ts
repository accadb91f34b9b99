import type { Built } from './built-programs.ts';

const path = 'sigs.k8s.io/cri-tools';
const version = 'v1.36.0';

/** crictl and critest. */
export const criTools: Built = {
  name: 'cri-tools',
  modules: [
    {
      path,
      version,
      linking: `-X ${path}/pkg/version.Version=${version}`,
      programs: { crictl: './cmd/crictl' },
      // critest is a test binary: its specs are in _test files.
      testPrograms: { critest: './cmd/critest' },
    },
  ],
  what: `crictl and critest ${version}`,
  time: 'one to three minutes',
};
