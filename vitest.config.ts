import { defineConfig } from 'vitest/config';

// unit, speed: anywhere, no root, no kernel of our own. The others: only inside the test node (test/support/node), as root, on cgroup v2.
const matrix = 'test/matrix/matrix.test.ts';
const crash = 'test/crash/crash.test.ts';
const chaos = 'test/chaos/chaos.test.ts';
const soak = 'test/soak/soak.test.ts';
const blocking = 'test/blocking/blocking.test.ts';
const kubelet = 'test/real-kubelet/*.test.ts';
/** Tests that measure time. Their results depend on the machine, and on what else runs on it. */
const speed = 'test/**/*.speed.test.ts';
const stockKernel = 'test/stock-kernel/*.test.ts';
/** In the node with Debian's kernel, qemu may translate every instruction. */
const slowness = process.env['NODE_KERNEL'] === 'debian' ? 5 : 1;
/** A wait that is too short for a busy machine says nothing about the code. */
const expectations = { poll: { timeout: 60_000 } };
const inNode = {
  expect: expectations,
  testTimeout: 300_000 * slowness,
  hookTimeout: 300_000 * slowness,
  fileParallelism: false,
  maxWorkers: 1,
};

export default defineConfig({
  test: {
    passWithNoTests: false,
    projects: [
      {
        test: {
          name: 'unit',
          setupFiles: ['test/support/seed.ts'],
          include: ['test/**/*.test.ts'],
          exclude: ['test/e2e/**', speed, matrix, crash, chaos, soak, blocking, kubelet, stockKernel],
          // Property tests compute for several seconds, and a busy machine makes that minutes.
          testTimeout: 180_000,
          hookTimeout: 180_000,
          expect: expectations,
        },
      },
      { test: { name: 'speed', include: [speed], fileParallelism: false, testTimeout: 180_000, hookTimeout: 180_000 } },
      {
        test: {
          name: 'e2e',
          include: ['test/e2e/**/*.test.ts'],
          setupFiles: ['test/support/e2e/failure-log.ts'],
          ...inNode,
        },
      },
      { test: { name: 'matrix', include: [matrix], ...inNode } },
      { test: { name: 'kubelet', include: [kubelet], ...inNode } },
      { test: { name: 'stock-kernel', include: [stockKernel], ...inNode } },
      { test: { name: 'blocking', include: [blocking], ...inNode } },
      { test: { name: 'soak', include: [soak], ...inNode } },
      // A test here is a round.
      { test: { name: 'chaos', include: [chaos], ...inNode, testTimeout: 180_000 } },
      // A test here is a scenario with all its points.
      { test: { name: 'crash', include: [crash], ...inNode, testTimeout: 1_800_000 } },
    ],
  },
});
