import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { version } from '../../../src/core/config/version.ts';
import type { CommandResult } from '../../../src/install/rollout/host.ts';
import { NoSystemd } from '../../../src/install/rollout/host.ts';
import { FAILED, HALTED } from '../../../src/install/rollout/lease.ts';
import type { FakeClusterApi } from '../../support/kubernetes/fake-cluster-api.ts';
import type { Behaviour, FakeNode } from '../../support/kubernetes/fake-nodes.ts';
import { done, FakeCluster } from '../../support/kubernetes/fake-nodes.ts';
import { SimulatedFleet } from '../../support/kubernetes/simulated-fleet.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

const MINUTE = 60_000;

let fleet: SimulatedFleet;

describe('turns of a rollout', () => {
  /** Tests the order of nodes. test/e2e/install/installer.test.ts tests what resizectl does on a host. */

  let cluster: FakeCluster;

  beforeEach(async () => (cluster = await new FakeCluster().start()));

  afterEach(() => cluster.stop());

  const until = (holds: () => boolean): Promise<void> => expect.poll(holds, { ...LONG_WAIT, interval: 20 }).toBe(true);
  const installed = (...nodes: readonly FakeNode[]): Promise<void> =>
    until(() => nodes.every(({ isReady }) => isReady));
  const haltedBy = (of: { readonly api: FakeClusterApi } = cluster): string | undefined =>
    of.api.lease?.metadata.annotations?.[HALTED];
  /** Does what an operator does with `kubectl annotate lease ... cri-resize-shim.io/halted-`. */
  const removeHalt = ({ api }: SimulatedFleet): void =>
    api.writeLease(({ metadata, spec }) => ({ metadata: { ...metadata, annotations: {} }, spec }));
  const giveLeaseTo = (holder: string, { api }: { readonly api: FakeClusterApi } = cluster): void =>
    api.writeLease(({ metadata, spec }) => ({ metadata, spec: { ...spec, holderIdentity: holder } }));
  const failed = { code: 3, lines: ['failed: enable and start cri-resize-shim.service: no', 'rolled back: write'] };
  const busy = {
    code: 7,
    lines: ['resizectl: nothing was changed: another installation runs (pid 7); what to do: wait until it has ended'],
  };

  describe('an installation', () => {
    test('install: three nodes get the shim one node at a time, each is reported, and the Lease is free afterwards', async () => {
      const fleet = new SimulatedFleet();
      const nodes = ['a', 'b', 'c'].map((name) => fleet.node(name).start());
      await fleet.installed(nodes, 10 * MINUTE);
      const { api, work } = fleet.cluster;
      expect(work).toHaveLength(6);
      for (const at of [0, 2, 4]) expect(work[at + 1]).toBe(`${work[at]!} 0`);
      expect(api.eventReasons().toSorted()).toEqual(['a', 'b', 'c'].map((name) => `${name}: ShimInstalled`));
      const holders = api.holders.filter((holder) => holder !== undefined);
      expect(holders.toSorted()).toEqual(['a', 'b', 'c']);
      expect(api.lease?.spec.holderIdentity).toBeUndefined();
    });

    test('an installation that is already in place needs no turn, even while the other nodes are halted', async () => {
      cluster.api.writeLease(({ metadata, spec }) => ({
        metadata: { ...metadata, annotations: { [HALTED]: 'b: x' } },
        spec,
      }));
      const node = cluster.node('a');
      node.isInstalled = true;
      await installed(node.start());
      expect(cluster.work).toEqual([]);
      expect(cluster.api.calls.map(({ verb, resource }) => `${verb} ${resource}`)).toEqual([
        ...['get leases', 'get nodes', 'patch nodes'],
      ]);
      expect(cluster.api.nodes.get('a')?.labels).toMatchObject({ 'cri-resize-shim.io/version': version });
    });

    test('install: a node on which the installation fails halts those after it until an operator removes the halt', async () => {
      const fleet = new SimulatedFleet();
      const { api, work } = fleet.cluster;
      let isBad = true;
      const first = fleet.node('a', { install: () => (isBad ? failed : done) }).start();
      await fleet.clock.until(() => haltedBy(fleet) !== undefined, MINUTE);
      expect(haltedBy(fleet)).toBe('a: failed: enable and start cri-resize-shim.service: no');
      const second = fleet.node('b').start();
      const why = 'waiting: halted: a: failed: enable and start';
      await fleet.clock.until(() => second.messages.some((line) => line.startsWith(why)), MINUTE);
      expect(work).toEqual(['a: install', 'a: install 3']);
      expect([first.isReady, second.isReady]).toEqual([false, false]);
      await fleet.clock.until(() => api.events.length > 0, MINUTE);
      expect(api.events).toMatchObject([{ type: 'Warning', reason: 'ShimInstallFailed', regarding: { name: 'a' } }]);
      isBad = false;
      removeHalt(fleet);
      await fleet.installed([first, second], 20 * MINUTE);
      expect(haltedBy(fleet)).toBeUndefined();
    });

    test('a node without systemd gets an event instead of an installation, and does not halt the others', async () => {
      const unfit = cluster.node('a', { idle: () => Promise.reject(new NoSystemd()) }).start();
      await until(() => cluster.api.events.length > 0);
      expect(cluster.api.events).toMatchObject([
        { reason: 'ShimInstallRefused', note: 'systemd is not the init system of this node', regarding: { name: 'a' } },
      ]);
      await installed(cluster.node('b').start());
      expect(cluster.work).toEqual(['b: install', 'b: install 0']);
      expect(unfit.isReady).toBe(false);
    });

    test('an unfit node gets an event instead of an installation, and does not halt the others', async () => {
      const look = { code: 2, lines: ['CHECK RESULT', 'resizectl: nothing was changed: cgroup v1; what to do: boot'] };
      const unfit = cluster.node('a', { look }).start();
      await until(() => cluster.api.events.length > 0);
      await installed(cluster.node('b').start());
      expect(cluster.work).toEqual(['b: install', 'b: install 0']);
      expect(cluster.api.eventReasons()).toEqual(['a: ShimInstallRefused', 'b: ShimInstalled']);
      expect(cluster.api.events[0]?.note).toBe('resizectl: nothing was changed: cgroup v1; what to do: boot');
      expect([unfit.isReady, haltedBy()]).toEqual([false, undefined]);
    });

    test('an installation is tried again after another one that runs on its node, and does not halt the others', async () => {
      let busyFor = 1;
      const node = cluster.node('a', { install: () => (busyFor-- > 0 ? busy : done) });
      await installed(node.start());
      expect(cluster.work).toEqual(['a: install', 'a: install 7', 'a: install', 'a: install 0']);
      expect([cluster.api.eventReasons(), haltedBy()]).toEqual([
        ['a: ShimInstallRefused', 'a: ShimInstalled'],
        undefined,
      ]);
    });

    test('an installation waits until its node is Ready', async () => {
      const node = cluster.node('a');
      cluster.api.set('a', { ready: 'False' });
      node.start();
      await until(() => node.messages.includes('waiting: this node is not Ready'));
      expect([cluster.work, cluster.api.holders]).toEqual([[], []]);
      cluster.api.set('a', { ready: 'True' });
      await installed(node);
    });

    test.each([
      ['the node does not become Ready', { ready: 'False' }, 'this node is not Ready again after 300 s'],
      // The API returns the last report of the stopped kubelet for some time.
      [
        'kubelet does not report its status',
        { heartbeat: '2020-01-01T00:00:00Z' },
        'kubelet has not reported its status again after 300 s',
      ],
    ] as const)('an installation halts the other nodes if afterwards %s', async (_, state, why) => {
      const fleet = new SimulatedFleet();
      const restarted = Date.now();
      const install = (): typeof done => (fleet.api.set('a', state), done);
      fleet.node('a', { install, kubeletStart: () => restarted }).start();
      await fleet.clock.until(() => haltedBy(fleet) !== undefined, 10 * MINUTE);
      expect(haltedBy(fleet)).toBe(`a: ${why}`);
      await fleet.clock.until(() => fleet.api.eventReasons().includes('a: ShimInstallFailed'), MINUTE);
    });

    test('an installation ends its turn when a lost API server is back', async () => {
      const node = cluster.node('a', { install: () => (cluster.api.away(true), done) }).start();
      await until(() => node.messages.some((line) => /cannot be read: .*; trying again/.test(line)));
      expect(node.isReady).toBe(false);
      cluster.api.away(false);
      await installed(node);
      expect(cluster.api.lease?.spec.holderIdentity).toBeUndefined();
    });
  });

  describe('a kubelet that no longer uses the shim', () => {
    const past = { state: 'past', note: 'kubelet is configured to use unix:///c.sock, not the shim' } as const;
    const shim = { state: 'shim', note: 'kubelet is configured to use the shim' } as const;
    const unknown = { state: 'unknown', note: '' } as const;

    test('a kubelet that no longer uses the shim is reported once, as is its return, and nothing is installed by default', async () => {
      let drift: typeof past | typeof shim = shim;
      let looks = 0;
      const node = cluster.node('a', { drift: () => ((looks += 1), drift) });
      await installed(node.start());
      drift = past;
      await until(() => cluster.api.eventReasons().includes('a: ShimDrift'));
      const seen = looks;
      await until(() => looks > seen + 5);
      drift = shim;
      await until(() => cluster.api.eventReasons().includes('a: ShimDriftEnded'));
      expect(cluster.api.eventReasons()).toEqual(['a: ShimInstalled', 'a: ShimDrift', 'a: ShimDriftEnded']);
      expect(cluster.api.events.slice(1)).toMatchObject([
        { type: 'Warning', note: past.note, action: 'Watch', regarding: { kind: 'Node', name: 'a' } },
        { type: 'Normal', note: shim.note },
      ]);
      expect(cluster.work).toEqual(['a: install', 'a: install 0']);
      expect(node.isReady).toBe(true);
    });

    test('a kubelet that no longer uses the shim gets it again in the turn of its node, but not a second time at once', async () => {
      let drift: typeof past | typeof shim = shim;
      const install = (): typeof done => ((drift = shim), done);
      const node = cluster.node('a', { drift: () => drift, install, repairsDrift: true });
      await installed(node.start());
      node.isInstalled = false;
      drift = past;
      await until(() => cluster.work.length === 4);
      await installed(node);
      await until(() => cluster.api.eventReasons().includes('a: ShimDriftEnded'));
      expect(cluster.api.eventReasons()).toEqual([
        ...['a: ShimInstalled', 'a: ShimDrift'],
        ...['a: ShimInstalled', 'a: ShimDriftEnded'],
      ]);
      expect(cluster.api.holders.filter((holder) => holder === 'a')).not.toEqual([]);
      // Another program writes its endpoint again.
      node.isInstalled = false;
      drift = past;
      await until(() => cluster.api.eventReasons().filter((reason) => reason === 'a: ShimDrift').length === 2);
      const looks = node.looks;
      await until(() => node.looks > looks + 5);
      expect(cluster.work).toHaveLength(4);
    });

    test('a kubelet that no longer uses the shim is repaired again after the pause between repairs', async () => {
      const node = cluster.node('a', { drift: () => past, repairsDrift: true }, { retry: 100 });
      const install = (): void => void (node.isInstalled = false);
      node.start();
      await until(() => (install(), cluster.work.length >= 6));
    });

    test('drift is not reported if only one look finds it, or if kubelet does not run', async () => {
      const drifts = [shim, past, shim, past, unknown, past, unknown, unknown, shim, shim];
      const node = cluster.node('a', { drift: () => drifts.shift() ?? shim, repairsDrift: true });
      await installed(node.start());
      await until(() => drifts.length === 0 && node.looks > 15);
      expect(cluster.api.eventReasons()).toEqual(['a: ShimInstalled']);
      expect(cluster.work).toHaveLength(2);
    });

    test('the endpoint of kubelet is read again after an error, and the error is logged once', async () => {
      let isBroken = true;
      const broken = (): never => {
        throw new Error('no procfs');
      };
      const node = cluster.node('a', { drift: () => (isBroken ? broken() : past) });
      await installed(node.start());
      await until(() => node.looks > 5);
      isBroken = false;
      await until(() => cluster.api.eventReasons().includes('a: ShimDrift'));
      const lines = node.messages.filter((line) => line.startsWith('kubelet’s endpoint') || line.includes('no procfs'));
      expect(lines).toEqual(["kubelet's endpoint cannot be read: no procfs"]);
    });
  });

  describe('a turn', () => {
    test('a turn is renewed while it lasts, so that no other node takes it', async () => {
      const fleet = new SimulatedFleet();
      // More than twice the duration of the Lease.
      const first = fleet.node('a', { install: async () => (await fleet.clock.sleep(12 * MINUTE), done) }).start();
      await fleet.clock.until(() => fleet.cluster.work.length === 1, MINUTE);
      const second = fleet.node('b').start();
      await fleet.installed([first, second], 20 * MINUTE);
      expect(fleet.cluster.work).toEqual(['a: install', 'a: install 0', 'b: install', 'b: install 0']);
    });

    test('a turn continues on its node after the pod was killed', async () => {
      cluster.node('a');
      giveLeaseTo('a');
      await installed(cluster.nodes[0]!.start());
    });

    test('the turn of a completed installation ends with the next pod if its pod was killed', async () => {
      const node = cluster.node('a');
      node.isInstalled = true;
      giveLeaseTo('a');
      await installed(node.start());
      expect([cluster.work, cluster.api.lease?.spec.holderIdentity]).toEqual([[], undefined]);
      expect(cluster.api.eventReasons()).toEqual(['a: ShimInstalled']);
    });

    test('a turn passes on if its node stops renewing it and is Ready, or has left the cluster', async () => {
      const fleet = new SimulatedFleet();
      fleet.api.set('gone-silent');
      giveLeaseTo('gone-silent', fleet);
      await fleet.installed([fleet.node('a').start()], 20 * MINUTE);
      giveLeaseTo('was-removed', fleet);
      await fleet.installed([fleet.node('b').start()], 20 * MINUTE);
      expect(haltedBy(fleet)).toBeUndefined();
    });

    test('install: a node that is lost during its turn and is not Ready halts those after it', async () => {
      const fleet = new SimulatedFleet();
      fleet.api.set('broken', { ready: 'Unknown' });
      giveLeaseTo('broken', fleet);
      const node = fleet.node('a').start();
      const isHalted = (): boolean => node.messages.some((line) => line.startsWith('waiting: halted'));
      await fleet.clock.until(isHalted, 20 * MINUTE);
      expect(haltedBy(fleet)).toBe('broken: lost during its turn, and not Ready');
      expect(fleet.cluster.work).toEqual([]);
    });
  });

  describe('the end of the installer’s pod', () => {
    const start = async (
      name = 'a',
      behaviour?: Behaviour,
      times?: Parameters<FakeCluster['node']>[2],
    ): Promise<FakeNode> => {
      const node = cluster.node(name, behaviour, times);
      node.isInstalled = true;
      await installed(node.start());
      return node;
    };

    test('a node with the label keeps the shim when the installer’s pod ends', async () => {
      const node = await start();
      await node.terminate();
      expect([node.isInstalled, cluster.work]).toEqual([true, []]);
      expect(node.messages.at(-1)).toBe('this node has the label: the shim stays installed');
    });

    test.each([{}, { 'cri-resize-shim.io/install': 'false' }])(
      'a node without the label (%j) loses the shim when the installer’s pod ends',
      async (labels) => {
        const node = await start();
        cluster.api.set('a', { labels });
        await node.terminate();
        expect(cluster.work).toEqual(['a: uninstall', 'a: uninstall 0']);
        expect(cluster.api.eventReasons()).toEqual(['a: ShimUninstalling', 'a: ShimUninstalled']);
        expect(cluster.api.lease?.spec.holderIdentity).toBeUndefined();
        expect(cluster.api.nodes.get('a')?.labels).toEqual(labels);
      },
    );

    test('a node that leaves the cluster keeps the shim when the installer’s pod ends', async () => {
      const node = await start();
      cluster.api.set('a', { labels: {}, deletionTimestamp: '2026-01-01T00:00:00Z' });
      await node.terminate();
      cluster.api.nodes.delete('a');
      await node.terminate();
      expect(cluster.work).toEqual([]);
    });

    test('the shim stays, with a message, if the API server does not answer when the installer’s pod ends', async () => {
      const node = await start('a', {}, { answer: 1000 });
      cluster.api.set('a', { labels: {} });
      cluster.api.away(true);
      await node.terminate();
      expect(cluster.work).toEqual([]);
      expect(node.messages.at(-1)).toBe(
        'the API server did not return the labels of this node: the shim stays installed',
      );
    });

    test('two nodes uninstall one after the other, even while installing is halted', async () => {
      const fleet = new SimulatedFleet();
      const nodes = ['a', 'b'].map((name) => fleet.node(name));
      for (const node of nodes) node.isInstalled = true;
      await fleet.installed(
        nodes.map((node) => node.start()),
        10 * MINUTE,
      );
      fleet.api.writeLease(({ metadata, spec }) => ({
        metadata: { ...metadata, annotations: { [HALTED]: 'c: x' } },
        spec,
      }));
      for (const { name } of nodes) fleet.api.set(name, { labels: {} });
      let ended = 0;
      const ending = Promise.all(nodes.map((node) => node.terminate().then(() => (ended += 1))));
      await fleet.clock.until(() => ended === nodes.length, 20 * MINUTE);
      await ending;
      const { work } = fleet.cluster;
      expect(work).toHaveLength(4);
      for (const at of [0, 2]) expect(work[at + 1]).toBe(`${work[at]!} 0`);
      expect(haltedBy(fleet)).toBe('c: x');
    });

    test('an uninstallation that fails is reported, and halts installing', async () => {
      const node = await start('a', { uninstall: () => ({ code: 3, lines: ['failed: set x: no'] }) });
      cluster.api.set('a', { labels: {} });
      await node.terminate();
      expect([cluster.api.eventReasons(), haltedBy()]).toEqual([
        ['a: ShimUninstalling', 'a: ShimUninstallFailed'],
        'a: failed: set x: no',
      ]);
    });

    test('an uninstallation waits for another installation that runs on its node', async () => {
      let busyFor = 2;
      const node = await start('a', { uninstall: () => (busyFor-- > 0 ? busy : done) });
      cluster.api.set('a', { labels: {} });
      await node.terminate();
      expect([cluster.api.eventReasons(), haltedBy()]).toEqual([
        ['a: ShimUninstalling', 'a: ShimUninstalled'],
        undefined,
      ]);
      expect(node.messages).toContain(`waiting: ${busy.lines[0]!}`);
    });

    test('an uninstallation that leaves files names them, and one that was rolled back is repeated by the next pod', async () => {
      const code = { a: 6, b: 0 };
      const lines = ['failed: x: no', 'NOT rolled back: y: no', 'left in place: set z', "rm: cannot remove 'p': no"];
      const [a, b] = [
        await start('a', { uninstall: () => ({ code: code.a, lines }) }),
        await start('b', { uninstall: () => ({ code: code.b, lines: ["rm: cannot remove 'p': no"] }) }),
      ];
      for (const node of [a, b]) cluster.api.set(node.name, { labels: {} });
      await a.terminate();
      await b.terminate();
      const notes = new Map(
        cluster.api.events.map(({ reason, regarding, note }) => [`${regarding.name} ${reason}`, note]),
      );
      expect(notes.get('a ShimUninstallFailed')).toBe('failed: x: no; NOT rolled back: y: no; left in place: set z');
      expect(notes.get('b ShimUninstalled')).toBe(
        "kubelet runs, and this node is Ready; left on this node: rm: cannot remove 'p': no",
      );
      code.a = 0;
      await a.terminate();
      expect([a.isInstalled, cluster.work.at(-1)]).toEqual([false, 'a: uninstall 0']);
    });

    test('the shim stays, with an event, if the grace period of the installer’s pod ends before its turn', async () => {
      const [a, b] = [await start('a'), await start('b', { uninstall: () => done })];
      giveLeaseTo('a');
      cluster.api.set('b', { labels: {} });
      const ending = b.terminate();
      await until(() => b.messages.includes('waiting: it is the turn of a'));
      b.timeUp();
      await ending;
      expect(cluster.work).toEqual([]);
      expect(cluster.api.eventReasons()).toEqual(['b: ShimLeftInstalled']);
      expect(a.isInstalled).toBe(true);
    });

    test('the staged files are removed, even if the restarted kubelet ends the pod before the node is Ready', async () => {
      const uninstall = (): CommandResult => {
        cluster.api.set('a', { ready: 'False' });
        return done;
      };
      const node = await start('a', { uninstall }, { ready: 600_000 });
      cluster.api.set('a', { labels: {} });
      const ending = node.terminate();
      await until(() => cluster.work.includes('a: uninstall 0') && !node.isStaged);
      expect(cluster.api.eventReasons()).toEqual(['a: ShimUninstalling']);
      node.timeUp();
      await ending;
      expect(cluster.api.eventReasons()).toEqual(['a: ShimUninstalling', 'a: ShimUninstallFailed']);
      expect(node.messages).toContain(
        'ShimUninstallFailed: the grace period of the pod ended before this node was Ready again',
      );
    });

    test('an installation that runs when the installer’s pod ends is completed, and then the label decides', async () => {
      const { promise, resolve } = Promise.withResolvers<typeof done>();
      const node = cluster.node('a', { install: () => promise }).start();
      await until(() => cluster.work.length === 1);
      cluster.api.set('a', { labels: {} });
      const ending = node.terminate();
      resolve(done);
      await ending;
      expect(cluster.work).toEqual(['a: install', 'a: install 0', 'a: uninstall', 'a: uninstall 0']);
    });

    test('a node whose shim was uninstalled by hand loses the label with the version, without a turn', async () => {
      const node = await start();
      expect(cluster.api.nodes.get('a')?.labels).toMatchObject({ 'cri-resize-shim.io/version': version });
      node.isInstalled = false;
      cluster.api.set('a', { labels: { 'cri-resize-shim.io/version': version } });
      await node.terminate();
      expect([cluster.work, cluster.api.nodes.get('a')?.labels]).toEqual([[], {}]);
      expect(node.messages).toContain('the shim is not installed');
    });

    test('the installer’s pod on a node without the shim ends without waiting for a turn', async () => {
      const node = cluster.node('a');
      cluster.api.set('a', { ready: 'False', labels: {} });
      node.start();
      await node.terminate();
      expect([cluster.work, cluster.api.holders]).toEqual([[], []]);
    });
  });
});

describe('outages during a rollout', () => {
  const RELEASE = '--revision=r1';
  const failures = (fleet: SimulatedFleet): string | undefined =>
    fleet.api.lease?.metadata.annotations?.['cri-resize-shim.io/failed'];

  beforeEach(() => (fleet = new SimulatedFleet()));

  async function outage(minutes: number): Promise<void> {
    fleet.isAway = true;
    await fleet.clock.elapse(minutes * MINUTE);
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
      // The API server returns the old status until kubelet can connect too.
      await fleet.clock.elapse(2 * MINUTE);
      fleet.api.set('a', { ready: 'True' });
      await fleet.installed([node], MINUTE);
      expect([failures(fleet), fleet.api.eventReasons()]).toEqual([undefined, ['a: ShimInstalled']]);
    });

    test('after an outage of the API server, a release is halted if its node is not Ready within 5 minutes', async () => {
      fleet.node('a', { flags: [RELEASE], install }).start();
      await fleet.clock.until(() => fleet.isAway, MINUTE);
      await outage(10);
      await fleet.clock.elapse(4 * MINUTE);
      expect(failures(fleet)).toBeUndefined();
      await fleet.clock.elapse(3 * MINUTE);
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
      await fleet.clock.elapse(5 * MINUTE);
      await outage(10);
      await fleet.clock.elapse(20 * MINUTE);
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
      await fleet.clock.elapse(2 * MINUTE);
      await outage(10);
      await fleet.clock.elapse(4 * MINUTE);
      expect(node.isReady).toBe(false);
      await fleet.installed([node], 4 * MINUTE);
    });
  });
});

describe('removals of a rollout', () => {
  beforeEach(() => (fleet = new SimulatedFleet()));

  /** Creates nodes with the shim whose label is removed. Only one of them may be changed at a time. */
  async function removals(names: readonly string[], behaviour: (node: () => FakeNode) => Behaviour): Promise<void> {
    const nodes = names.map((name) => {
      const node: FakeNode = fleet.node(
        name,
        behaviour(() => node),
      );
      node.isInstalled = true;
      return node.start();
    });
    await fleet.installed(nodes, 5 * MINUTE);
    for (const node of nodes) {
      fleet.api.set(node.name, { labels: {} });
      void node.terminate();
      await fleet.clock.until(() => fleet.cluster.work.length > 0, MINUTE);
    }
  }

  const removed = (): readonly string[] => fleet.cluster.work.filter((line) => line.endsWith(': uninstall 0'));
  const halts = (): readonly unknown[] => [FAILED, HALTED].map((name) => fleet.api.lease?.metadata.annotations?.[name]);

  describe('the turn of a node whose kubelet has ended the pod', () => {
    test('the turn of a pod that kubelet has ended is over after a minute if the node is Ready', async () => {
      await removals(['a', 'b', 'c', 'd'], (node) => ({ uninstall: () => (node().vanish(), done) }));
      await fleet.clock.until(() => removed().length === 4, 6 * MINUTE);
      expect([fleet.most, halts()]).toEqual([1, [undefined, undefined]]);
    });

    test('the turn of a pod that kubelet has ended is not over before the node is Ready, which may take minutes', async () => {
      const uninstall = (node: () => FakeNode): typeof done => {
        if (node().name === 'a') fleet.api.set('a', { ready: 'False' });
        node().vanish();
        return done;
      };
      await removals(['a', 'b'], (node) => ({ uninstall: () => uninstall(node) }));
      await fleet.clock.elapse(4 * MINUTE);
      expect(fleet.cluster.work).toEqual(['a: uninstall', 'a: uninstall 0']);
      fleet.api.set('a', { ready: 'True' });
      await fleet.clock.until(() => removed().length === 2, MINUTE);
      expect(halts()).toEqual([undefined, undefined]);
    });
  });

  test('a long removal keeps its turn as long as its pod runs', async () => {
    const uninstall = async (): Promise<typeof done> => (await fleet.clock.sleep(10 * MINUTE), done);
    await removals(['a', 'b'], () => ({ uninstall }));
    await fleet.clock.until(() => removed().length === 2, 25 * MINUTE);
    expect(fleet.most).toBe(1);
  });

  describe('a removal that is not completed', () => {
    const VERSION = 'cri-resize-shim.io/version';
    const busy = { code: 7, lines: ['resizectl: nothing was changed: another installation runs (pid 7)'] };
    const noSpace = (): never => {
      throw new Error('ENOSPC: no space left on device');
    };

    /** Waits until the pod of a node without the label has ended. Returns the remaining state of the removal. */
    async function ended(node: FakeNode, meanwhile: () => Promise<void> = () => Promise.resolve()): Promise<object> {
      fleet.api.set(node.name, { labels: { [VERSION]: version } });
      let isOver = false;
      const ending = node.terminate().finally(() => (isOver = true));
      await meanwhile();
      await fleet.clock.until(() => isOver, 30 * MINUTE);
      await ending;
      return {
        events: fleet.api.events.map(({ reason, note }) => `${reason}: ${note}`),
        version: fleet.api.nodes.get(node.name)?.labels[VERSION],
        turns: fleet.api.lease?.spec.holderIdentity,
        isHalted: halts().some((halt) => halt !== undefined),
      };
    }

    async function start(behaviour: Behaviour): Promise<FakeNode> {
      const node = fleet.node('a', behaviour);
      node.isInstalled = true;
      await fleet.installed([node.start()], MINUTE);
      return node;
    }

    test.each([
      ['again after another installation', 3],
      ['in either attempt', 2],
    ])('a removal is reported and ends its turn if the program cannot be copied %s', async (_, last) => {
      let copies = 0;
      const stage = (): void => ((copies += 1) >= last ? noSpace() : undefined);
      expect(await ended(await start({ stage, uninstall: () => busy }))).toEqual({
        events: [
          'ShimUninstalling: the label was removed: kubelet is about to restart',
          'ShimUninstallFailed: ENOSPC: no space left on device',
        ],
        ...{ version, turns: undefined, isHalted: true },
      });
    });

    test('a removal continues if the program could not be copied once', async () => {
      let copies = 0;
      const stage = (): void => ((copies += 1) === 2 ? noSpace() : undefined);
      expect(await ended(await start({ stage }))).toMatchObject({
        version: undefined,
        turns: undefined,
        isHalted: false,
      });
      expect([copies, removed()]).toEqual([3, ['a: uninstall 0']]);
    });

    test('a removal is reported and ends its turn if another installation runs until the grace period of the pod is over', async () => {
      const node = await start({ uninstall: () => busy });
      const meanwhile = async (): Promise<void> => {
        await fleet.clock.until(() => fleet.cluster.work.length > 4, 5 * MINUTE);
        node.timeUp();
      };
      expect(await ended(node, meanwhile)).toEqual({
        events: [
          'ShimUninstalling: the label was removed: kubelet is about to restart',
          'ShimLeftInstalled: the grace period of the pod ended before the removal could begin',
        ],
        ...{ version, turns: undefined, isHalted: false },
      });
    });

    test('a removal that fails when the grace period of the pod is over is reported, and halts installing', async () => {
      const node = await start({ uninstall: () => (node.timeUp(), { code: 3, lines: ['failed: set x: no'] }) });
      expect(await ended(node)).toMatchObject({
        events: [expect.stringMatching(/^ShimUninstalling: /), 'ShimUninstallFailed: failed: set x: no'],
        ...{ version, turns: undefined, isHalted: true },
      });
    });

    test('a removal that fails with any other error is reported', async () => {
      const works = [Promise.resolve(), Promise.reject(new Error('nsenter: no')), Promise.resolve()];
      const idle = (): Promise<void> => works.shift() ?? Promise.resolve();
      for (const work of works) work.catch(() => undefined);
      expect(await ended(await start({ idle }))).toEqual({
        events: ['ShimLeftInstalled: nsenter: no'],
        ...{ version, turns: undefined, isHalted: false },
      });
    });
  });

  test('a pod of a node without systemd, where nothing was installed, ends at once', async () => {
    const node = fleet.node('a', { idle: () => Promise.reject(new NoSystemd()) }).start();
    await fleet.clock.until(() => fleet.api.events.length > 0, MINUTE);
    fleet.api.set('a', { labels: {} });
    let isEnded = false;
    void node.terminate().then(() => (isEnded = true));
    await fleet.clock.until(() => isEnded, MINUTE);
    expect(node.messages.slice(-1)).toEqual(['the shim is not installed']);
    expect(fleet.api.eventReasons()).toEqual(['a: ShimInstallRefused']);
  });

  describe('a removal that waits for its turn', () => {
    const LABEL = { 'cri-resize-shim.io/install': 'true' };
    const VERSION = { 'cri-resize-shim.io/version': version };

    test.each([
      [
        'gets the label again',
        { labels: { ...LABEL, ...VERSION } },
        'this node has the label again: the shim stays installed',
      ],
      [
        'is removed from the cluster',
        { labels: VERSION, deletionTimestamp: '2026-01-01T00:00:00Z' },
        'this node is being removed from the cluster: the shim stays installed',
      ],
    ])(
      'a removal that waits for its turn leaves the shim installed if its node %s, and ends its turn',
      async (_, state, message) => {
        const uninstall = async (): Promise<typeof done> => (await fleet.clock.sleep(5 * MINUTE), done);
        const [a, b] = ['a', 'b'].map((name) => fleet.node(name, { uninstall }));
        for (const node of [a!, b!]) {
          node.isInstalled = true;
          node.start();
        }
        await fleet.installed([a!, b!], MINUTE);
        let isOver = false;
        for (const node of [a!, b!]) {
          fleet.api.set(node.name, { labels: VERSION });
          void node.terminate().then(() => (isOver = node === b));
          await fleet.clock.until(() => fleet.cluster.work.length > 0, MINUTE);
        }
        await fleet.clock.until(() => b!.messages.includes('waiting: it is the turn of a'), MINUTE);
        fleet.api.set('b', state);
        await fleet.clock.until(() => isOver, 20 * MINUTE);
        expect(fleet.cluster.work).toEqual(['a: uninstall', 'a: uninstall 0']);
        expect([b!.messages.at(-1), b!.isInstalled]).toEqual([message, true]);
        expect([fleet.api.nodes.get('b')?.labels, fleet.api.lease?.spec.holderIdentity]).toEqual([
          state.labels,
          undefined,
        ]);
        expect(fleet.api.eventReasons()).toEqual(['a: ShimUninstalling', 'a: ShimUninstalled']);
      },
    );
  });
});
