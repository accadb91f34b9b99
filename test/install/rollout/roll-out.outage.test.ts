import { beforeEach, describe, expect, test } from 'vitest';
import { done } from '../../support/kubernetes/fake-nodes.ts';
import { SimulatedFleet } from '../../support/kubernetes/simulated-fleet.ts';

/** Tests outages of the API server during a turn, in virtual time. */

const MINUTE = 60_000;
const RELEASE = '--revision=r1';
const failures = (fleet: SimulatedFleet): string | undefined =>
  fleet.api.lease?.metadata.annotations?.['cri-resize-shim.io/failed'];

let fleet: SimulatedFleet;
beforeEach(() => (fleet = new SimulatedFleet()));

async function outage(minutes: number): Promise<void> {
  fleet.isAway = true;
  await fleet.clock.pass(minutes * MINUTE);
  fleet.isAway = false;
}

describe('an outage that begins while a node waits for its restarted kubelet', () => {
  const install = (): typeof done => {
    fleet.api.set('a', { ready: 'False' });
    fleet.isAway = true;
    return done;
  };

  test('after an outage of the API server, a restarted kubelet has time to report again', async () => {
    const node = fleet.node('a', { flags: [RELEASE], install }).start();
    await fleet.clock.until(() => fleet.isAway, MINUTE);
    await outage(10);
    // The API server has the old status until kubelet has reached it too.
    await fleet.clock.pass(2 * MINUTE);
    fleet.api.set('a', { ready: 'True' });
    await fleet.installed([node], MINUTE);
    expect([failures(fleet), fleet.api.eventReasons()]).toEqual([undefined, ['a: ShimInstalled']]);
  });

  test('after an outage of the API server, a release is halted if its node is not Ready within 5 minutes', async () => {
    fleet.node('a', { flags: [RELEASE], install }).start();
    await fleet.clock.until(() => fleet.isAway, MINUTE);
    await outage(10);
    await fleet.clock.pass(4 * MINUTE);
    expect(failures(fleet)).toBeUndefined();
    await fleet.clock.pass(3 * MINUTE);
    expect(failures(fleet)).toBe('{"r1":"a: this node is not Ready again after 300 s"}');
  });
});

describe('an outage while other nodes wait for a turn', () => {
  test('an outage of the API server does not end a turn, because its node could not renew it', async () => {
    const first = fleet
      .node('a', { flags: [RELEASE], install: async () => (await fleet.clock.sleep(40 * MINUTE), done) })
      .start();
    await fleet.clock.until(() => fleet.cluster.work.includes('a: install'), MINUTE);
    const others = ['b', 'c', 'd', 'e', 'f'].map((name) => fleet.node(name, { flags: [RELEASE] }).start());
    await fleet.clock.pass(5 * MINUTE);
    await outage(10);
    await fleet.clock.pass(20 * MINUTE);
    expect(fleet.cluster.work).toEqual(['a: install']);
    await fleet.installed([first, ...others], 20 * MINUTE);
    expect([fleet.most, failures(fleet)]).toEqual([1, undefined]);
    expect(first.messages.filter((line) => line.startsWith('another node has taken'))).toEqual([]);
  });

  test('an outage of the API server does not keep the turn of a pod that was killed', async () => {
    fleet.api.set('silent');
    fleet.api.writeLease(({ metadata }) => ({
      metadata: { ...metadata, annotations: { 'cri-resize-shim.io/turns': '{"silent":"2026-01-01T00:00:00Z"}' } },
      spec: { holderIdentity: 'silent', renewTime: '2026-01-01T00:00:00Z' },
    }));
    const node = fleet.node('a', { flags: [RELEASE] }).start();
    await fleet.clock.pass(2 * MINUTE);
    await outage(10);
    await fleet.clock.pass(4 * MINUTE);
    expect(node.isReady).toBe(false);
    await fleet.installed([node], 4 * MINUTE);
  });
});
