import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

test('docs/kubernetes.md lists all events of a node, and no others', () => {
  const listed = [...readFileSync('docs/kubernetes.md', 'utf8').matchAll(/^\| `(Shim\w+)` \| /gm)].map(
    ([, name]) => name!,
  );
  const [, type = ''] =
    /export type Reason =([^;]+);/.exec(readFileSync('src/install/rollout/events.ts', 'utf8')) ?? [];
  const reasons = [...type.matchAll(/'(\w+)'/g)].map(([, name]) => name!);
  expect(reasons.length).toBeGreaterThan(4);
  // One event also has a row in the table of symptoms.
  expect([...new Set(listed)].toSorted()).toEqual(reasons.toSorted());
});
