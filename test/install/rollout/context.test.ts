import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { PostingContext } from '../../../src/install/rollout/context.ts';
import { driftPlaces, labelled, posted, VERSION_LABEL } from '../../../src/install/rollout/context.ts';
import { labelNode, readNode } from '../../../src/install/rollout/node.ts';
import { ApiRefusal } from '../../../src/kubernetes/client/errors.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { SimulatedFleet } from '../../support/kubernetes/simulated-fleet.ts';

describe('paths of the installation', () => {
  let folder: string;

  beforeEach(() => (folder = mkdtempSync(join(tmpdir(), 'context-'))));

  afterEach(() => rmSync(folder, { recursive: true }));

  const host = { procRoot: '/proc', hostRoot: '/proc/1/root' };

  test('the socket and the state folder of the shim are those of the given configuration', async () => {
    const config = join(folder, 'config.yaml');
    writeFileSync(config, 'listen: unix:///run/other/cri.sock\nstateFolder: /srv/shim\n');
    expect(await driftPlaces(config)).toEqual({ ...host, listen: '/run/other/cri.sock', stateFolder: '/srv/shim' });
  });

  test('without a configuration, the socket and the state folder of the shim are the defaults', async () => {
    const defaults = { listen: '/run/cri-resize-shim/cri-resize-shim.sock', stateFolder: '/var/lib/cri-resize-shim' };
    expect(await driftPlaces(undefined)).toEqual({ ...host, ...defaults });
  });
});

/** Posts an event to an API server that answers each try with the next error, and after the last one with success. */
async function posting(...errors: readonly Error[]): Promise<{ lines: readonly string[]; tries: number; ms: number }> {
  const clock = new FakeClock();
  const lines: string[] = [];
  let tries = 0;
  const context: PostingContext = {
    ...{ clock, random: () => 0, say: (line: string) => void lines.push(line) },
    eventToPost: () => () => {
      const error = errors[tries];
      tries += 1;
      return error === undefined ? Promise.resolve() : Promise.reject(error);
    },
  };
  let isOver = false;
  void posted(context, 'ShimInstalled', 'kubelet runs', new AbortController().signal).finally(() => (isOver = true));
  await clock.until(() => isOver, 60_000);
  return { lines, tries, ms: clock.passed };
}

const forbidden = new ApiRefusal(
  403,
  'events.events.k8s.io is forbidden: User "system:serviceaccount:cri-resize-shim:x" cannot create resource "events" in API group "events.k8s.io" in the namespace "default"',
);

test('an event is given up immediately without the right to create it, and the log names the right', async () => {
  expect(await posting(forbidden)).toEqual({
    lines: [
      `the event was not created: ${forbidden.message}; the installer needs the right to create events (events.k8s.io) in the namespace default`,
    ],
    tries: 1,
    ms: 0,
  });
});

test('an event that the API server cannot store is created by a later try', async () => {
  const { lines, tries } = await posting(new ApiRefusal(503, 'etcd has no leader'), new ApiRefusal(429, ''));
  expect([lines, tries]).toEqual([
    [
      'the event cannot be created: HTTP 503: etcd has no leader; trying again',
      'the event cannot be created: HTTP 429; trying again',
    ],
    3,
  ]);
});

/** Labels the node in virtual time. Returns the lines of the log, the label, and the elapsed time. */
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
