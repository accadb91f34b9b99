import { expect, test } from 'vitest';
import { VERSION_LABEL, labelled } from '../../../src/install/rollout/context.ts';
import { labelNode, readNode } from '../../../src/install/rollout/node.ts';
import { SimulatedFleet } from '../../support/kubernetes/simulated-fleet.ts';

/** Labels the node in virtual time. Returns the lines of the log, the label, and the time that it took. */
async function labelling(...missing: readonly string[]): Promise<readonly unknown[]> {
  const fleet = new SimulatedFleet();
  const { api, clock } = fleet.outside;
  fleet.api.set('a');
  for (const right of missing) fleet.api.forbidden.add(right);
  const lines: string[] = [];
  const context = {
    ...{ clock, random: () => 0, say: (line: string) => void lines.push(line) },
    readNode: (signal: AbortSignal) => readNode(api, 'a', signal),
    labelVersion: (value: string | undefined, signal: AbortSignal) => labelNode(api, 'a', VERSION_LABEL, value, signal),
  };
  let isOver = false;
  void labelled(context, '1.2.3+b', new AbortController().signal).finally(() => (isOver = true));
  await fleet.clock.until(() => isOver, 60_000);
  return [lines, fleet.api.nodes.get('a')?.labels[VERSION_LABEL], fleet.clock.passed < 1000];
}

test('a node gets the label with the installed version', async () => {
  expect(await labelling()).toEqual([[], '1.2.3_b', true]);
});

test.each(['get nodes', 'patch nodes'])(
  'the version label is given up immediately without the right to %s',
  async (right) => {
    const [verb] = right.split(' ');
    const refused = expect.stringMatching(
      `^the version label was not set: HTTP 403: nodes is forbidden: .* cannot ${verb} resource "nodes".*; the installer needs the rights to get and patch nodes$`,
    ) as unknown;
    expect(await labelling(right)).toEqual([[refused], undefined, true]);
  },
);
