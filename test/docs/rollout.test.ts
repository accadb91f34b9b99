import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

test('docs/kubernetes.md lists every event of a node, and no other', () => {
  const listed = [...readFileSync('docs/kubernetes.md', 'utf8').matchAll(/^\| `(Shim\w+)` \| /gm)].map(
    ([, name]) => name!,
  );
  const [, type = ''] =
    /export type Reason =([^;]+);/.exec(readFileSync('src/install/rollout/events.ts', 'utf8')) ?? [];
  const told = [...type.matchAll(/'(\w+)'/g)].map(([, name]) => name!);
  expect(told.length).toBeGreaterThan(4);
  // One of these has a row in the table of troubles as well.
  expect([...new Set(listed)].toSorted()).toEqual(told.toSorted());
});
