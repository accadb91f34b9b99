import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { PodDescription } from '../../../src/runtime/description.ts';
import { journalAllVolumes, observeVolumes } from '../../../src/sandbox/volumes/volume-tracking.ts';
import { FakeRuntime, SANDBOX } from '../../support/fake-runtime.ts';
import { mi } from '../../support/quantities/mebibytes.ts';

/** The mount of the pod's volume with this size in mebibytes. */
const cache = (mebibytes: number) => [{ name: 'cache', device: '0:50', size: mi(mebibytes) }];

let runtime: FakeRuntime;
beforeEach(async () => {
  runtime = await FakeRuntime.start();
  runtime.makePod(String(100 * MiB), [100 * MiB]);
});
afterEach(() => runtime.close());

describe('an ended sandbox and its replacement', () => {
  let [ended, running]: PodDescription[] = [];
  beforeEach(async () => {
    const { registry } = runtime.node;
    ended = (await registry.pod(SANDBOX))!;
    observeVolumes(runtime.node, ended, cache(100), mi(100));
    await journalAllVolumes(runtime.node);
    running = { ...ended, sandboxId: 'b'.repeat(64), metadata: { ...ended.metadata, attempt: 1 } };
    registry.learnPod(running);
    // The shim grows the volume with the pod limit.
    runtime.node.policies.recordMounts(running.sandboxId, cache(200));
  });

  test('an ended sandbox does not change the journalled volume policies and sizes of its replacement', async () => {
    const { journal } = runtime.node;
    for (let recovery = 0; recovery < 3; recovery += 1) {
      await journalAllVolumes(runtime.node);
      const mount = { device: '0:50', size: mi(200) };
      expect(journal.volumesOf(running!).get('cache')).toMatchObject({ policy: { kind: 'follow' }, mount });
    }
  });

  test('a view of an ended sandbox does not attribute a size of its replacement to another program', () => {
    const { policies, outcomes } = runtime.node;
    const before = outcomes.of(ended!.sandboxId);
    observeVolumes(runtime.node, ended!, cache(200), mi(200));
    expect(policies.policy(ended!.sandboxId, 'cache')).toMatchObject({ kind: 'follow' });
    expect(outcomes.of(ended!.sandboxId)).toEqual(before);
    observeVolumes(runtime.node, running!, cache(300), mi(200));
    expect(policies.policy(running!.sandboxId, 'cache')).toEqual({ kind: 'absolute', size: mi(300) });
  });
});
