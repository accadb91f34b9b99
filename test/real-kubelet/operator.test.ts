import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { execa } from 'execa';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { version } from '../../src/core/config/version.ts';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { isSystemdNode, podCgroupFolder } from '../support/cri/pod-cgroup.ts';
import {
  CONFIG,
  CONTAINERD,
  OURS,
  property,
  removePackage,
  SETTINGS,
  states,
  UNIT,
} from '../support/e2e/kubelet-unit.ts';
import { Cluster, POD_ON_NODE, until } from './cluster.ts';
import { runsPod } from './readiness.ts';
import { ReadyWatch } from './ready/ready-watch.ts';

/**
 * A scripted operator on a node with a real kubelet, with the commands of README: install, look, resize, switch off,
 * upgrade, drift, bypass, the way back by hand, uninstall. The tests build on each other. The node is watched all the
 * time, and has to be Ready at every moment.
 */

const SERVICE = 'cri-resize-shim.service';
const PROGRAM = '/usr/local/lib/cri-resize-shim';
const WEB = '/api/v1/namespaces/default/pods/web';
const on = ['active', 'active', 'active'];
const off = ['inactive', 'inactive', 'inactive'];

let cluster: Cluster;
let ready: ReadyWatch;
let uid: string;

interface Ended {
  readonly text: string;
  readonly code: number | undefined;
}
interface Pod {
  readonly metadata: { readonly uid: string };
  readonly status: {
    readonly phase: string;
    readonly containerStatuses?: readonly { readonly containerID?: string; readonly restartCount: number }[];
  };
}

async function run(file: string, args: readonly string[]): Promise<Ended> {
  const { all, exitCode } = await execa(file, args, { reject: false, all: true });
  return { text: all, code: exitCode };
}
/** Runs the resizectl that is installed on the node. Before the installation, runs that of the checkout. */
const resizectl = (...args: readonly string[]): Promise<Ended> =>
  existsSync('/usr/local/bin/resizectl') ? run('/usr/local/bin/resizectl', args) : fresh(...args);
/** The resizectl of the release that is to be installed. */
const fresh = (...args: readonly string[]): Promise<Ended> => run('node', ['dist/resizectl.js', ...args]);

async function prints(ended: Promise<Ended>, code = 0): Promise<string> {
  const { text, code: found } = await ended;
  expect(found, text).toBe(code);
  return text;
}
const done = (...args: readonly string[]): Promise<string> => prints(resizectl(...args));

/** Starts a command that runs until it is stopped. Returns its output. */
function following(...args: readonly string[]): { readonly text: () => string; readonly stop: () => Promise<void> } {
  const running = execa('/usr/local/bin/resizectl', args, { reject: false, all: true });
  let text = '';
  running.all.on('data', (chunk: Buffer) => (text += chunk.toString()));
  const stop = async (): Promise<void> => {
    running.kill('SIGTERM');
    await running;
  };
  return { text: () => text, stop };
}

const memoryMax = (): number =>
  Number(readFileSync(join(podCgroupFolder(uid, 'burstable'), 'memory.max'), 'utf8').trim());
const web = (): Promise<Pod> => cluster.api.get(WEB);
/** The same value means that the container has not restarted. */
const container = async (): Promise<object> => {
  const [status] = (await web()).status.containerStatuses ?? [];
  return { id: status?.containerID, restarts: status?.restartCount };
};
const byKubectl = (memory: string): Promise<unknown> =>
  cluster.api.patch(`${WEB}/resize`, {
    spec: { containers: [{ name: 'app', resources: { limits: { memory } } }] },
  });
const endpoint = (): string | undefined =>
  /^containerRuntimeEndpoint: "?([^"\s]+)/m.exec(readFileSync(CONFIG, 'utf8'))?.[1];
const usesShim = async (): Promise<void> => {
  const { text } = await resizectl('doctor');
  expect(text).toMatch(/^shim +ok +serves .*, ready/m);
  expect(text).toMatch(/^kubelet +ok +uses the shim/m);
};

beforeAll(async () => {
  expect(isSystemdNode, 'this file is for a node with systemd').toBe(true);
  await removePackage();
  cluster = await Cluster.start('/run/kubernetes-operator');
  await cluster.startKubeletUnit(CONTAINERD);
  ready = new ReadyWatch(cluster);
  await cluster.api.create(dirname(WEB), {
    metadata: { name: 'web' },
    spec: {
      ...POD_ON_NODE,
      containers: [
        {
          ...{ name: 'app', image: 'localhost/busybox:1', imagePullPolicy: 'Never', command: ['sleep', '1000000'] },
          resources: { requests: { cpu: '50m', memory: '32Mi' }, limits: { cpu: '200m', memory: '128Mi' } },
        },
      ],
    },
  });
  await until(async () => (await web()).status.phase === 'Running', 'the pod to run', 120);
  ({ uid } = (await web()).metadata);
}, 600_000);

afterEach(() => expect(ready.breaks).toEqual([]));
afterAll(async () => {
  await execa('node', ['dist/resizectl.js', 'uninstall'], { reject: false });
  await execa('systemctl', ['stop', 'kubelet.service'], { reject: false });
  await cluster.stop();
  for (const path of [UNIT, dirname(SETTINGS)]) rmSync(path, { recursive: true, force: true });
});

const LONG = 300_000;

test(
  'a dry run of the installation changes nothing, and the installation puts the shim below kubelet',
  async () => {
    const before = await container();
    expect(await prints(fresh('install', '--dry-run'))).toMatch(/^would: enable and start /m);
    expect([await states(), endpoint()]).toEqual([off, CONTAINERD]);
    const said = await prints(fresh('install'));
    expect(said).toContain(`install ${version}\n`);
    expect(said).toMatch(/^next: .*\nundo: /m);
    expect([await states(), endpoint()]).toEqual([on, OURS]);
    await usesShim();
    await runsPod(cluster, 'installed');
    expect(await container()).toEqual(before);
  },
  LONG,
);

describe('the configuration', () => {
  test('config check reports an unknown key, and config show prints where a value comes from', async () => {
    const file = '/root/bad.yaml';
    writeFileSync(file, 'logLevl: debug\n');
    expect(await prints(resizectl('config', 'check', file), 1)).toMatch(
      /logLevl: unknown key \(did you mean logLevel\?\)/,
    );
    rmSync(file);
    expect(await done('config', 'check')).toContain('valid');
    const { settings } = JSON.parse(await done('config', 'show', '-o', 'json')) as {
      settings: readonly { readonly key: string; readonly value: unknown; readonly from: string }[];
    };
    expect(settings.find(({ key }) => key === 'intercept')).toMatchObject({ value: true, from: 'default' });
  });

  test(
    'a shim with an invalid configuration forwards every call, and doctor and the journal report the problem',
    async () => {
      const valid = readFileSync(SETTINGS, 'utf8');
      writeFileSync(SETTINGS, `${valid}\nlogLevl: debug\n`);
      try {
        await execa('systemctl', ['restart', SERVICE]);
        await runsPod(cluster, 'invalid');
        expect(await prints(resizectl('doctor'), 2)).toMatch(/^configuration +failed +.*logLevl/m);
        const { stdout } = await execa('journalctl', [
          '-t',
          'cri-resize-shim',
          '-p',
          'warning',
          '-o',
          'cat',
          '--no-pager',
        ]);
        expect(stdout).toMatch(/^cri-resize-shim: .*logLevl: unknown key/m);
      } finally {
        writeFileSync(SETTINGS, valid);
        await execa('systemctl', ['restart', SERVICE]);
      }
      await usesShim();
    },
    LONG,
  );
});

test(
  'kubelet stays connected while the shim is switched off and on, and resizes by itself while the shim is off',
  async () => {
    const kubelet = await property('kubelet.service', 'MainPID');
    expect(await done('off')).toContain('off: the shim forwards every call unchanged');
    expect((await resizectl('doctor')).text).toMatch(/^shim +ok +serves .*, off by configuration/m);
    await byKubectl('144Mi');
    await until(() => memoryMax() === 144 * MiB, 'kubelet to resize without the shim');
    expect(await done('on')).toContain('on: the shim acts on resizes');
    await usesShim();
    expect(await property('kubelet.service', 'MainPID')).toBe(kubelet);
  },
  LONG,
);

test(
  'events, watch, describe, get and top show the history of successful and refused resizes',
  async () => {
    const [events, watch] = [following('events'), following('watch')];
    try {
      await until(() => watch.text().includes('web'), 'the first list of watch');
      await byKubectl('192Mi');
      await until(() => memoryMax() === 192 * MiB, 'kubelet to resize');
      await until(() => /default\/web +Completed +by kubelet \(\d+\).*192Mi/.test(events.text()), events.text());
      expect(await done('resize', 'web', 'app.memory=256Mi')).toContain('kubectl patch pod');
      expect(memoryMax()).toBe(256 * MiB);
      const [, id = ''] = /\/\/(.*)$/.exec((await web()).status.containerStatuses?.[0]?.containerID ?? '') ?? [];
      const limit = ['--memory', String(240 * MiB), id];
      await prints(run('crictl', ['--runtime-endpoint', OURS, 'update', ...limit]));
      await until(() => /default\/web +Completed +by crictl \(\d+\).*240Mi/.test(events.text()), events.text());
      const refused = await resizectl('resize', 'web', 'app.memory=64Ti', 'app.requests.memory=64Ti');
      expect(refused.code, refused.text).toBe(3);
      await until(() => /Infeasible +by API \(resizectl, \d+\)/.test(events.text()), 'the refused resize in events');
      await until(
        () =>
          watch
            .text()
            .split('\n')
            .filter((line) => /\bweb\b/.test(line)).length >= 4,
        'three resizes in watch',
      );
    } finally {
      await events.stop();
      await watch.stop();
    }
    for (const text of [events.text(), await done('describe', 'pod', 'web')]) {
      expect(text).toMatch(/kubelet \(\d+\)/);
      expect(text).toMatch(/API \(resizectl, \d+\)/);
      expect(text).toMatch(/crictl \(\d+\)/);
      expect(text).toContain('Infeasible');
    }
    expect(await done('get', 'pods')).toMatch(/^default +web .*Infeasible/m);
    expect(await done('top')).toMatch(/^default +web +\d/m);
    // The next success replaces the error.
    await byKubectl('208Mi');
    await until(() => memoryMax() === 208 * MiB, 'kubelet to resize again');
    await until(async () => /^default +web .*Completed/m.test(await done('get', 'pods')), 'the error to be replaced');
  },
  LONG,
);

test(
  'an upgrade reports the previous version, and pods and kubelet continue',
  async () => {
    const before = await container();
    const kubelet = await property('kubelet.service', 'MainPID');
    const description = join(PROGRAM, 'package.json');
    writeFileSync(
      description,
      readFileSync(description, 'utf8').replace(`"version": "${version}"`, '"version": "0.1.0"'),
    );
    expect(await prints(fresh('install', '--dry-run'))).toContain(`would upgrade 0.1.0 to ${version}\n`);
    const said = await prints(fresh('install'));
    expect(said).toContain(`upgrade done: 0.1.0 to ${version}`);
    expect(said).toContain('undo: run resizectl install of 0.1.0');
    await usesShim();
    await runsPod(cluster, 'upgraded');
    expect([await container(), await property('kubelet.service', 'MainPID')]).toEqual([before, kubelet]);
  },
  LONG,
);

test(
  'a kubelet that bypasses the shim is reported within 75 s, and an installation repairs it',
  async () => {
    writeFileSync(CONFIG, readFileSync(CONFIG, 'utf8').replace(OURS, CONTAINERD));
    await execa('systemctl', ['restart', 'kubelet.service']);
    const begin = Date.now();
    const since = new Date(begin).toISOString().slice(0, 19).replace('T', ' ');
    const journal = async (): Promise<string> =>
      (
        await execa('journalctl', [
          '-t',
          'cri-resize-shim',
          '-p',
          'warning',
          `--since=${since} UTC`,
          '-o',
          'cat',
          '--no-pager',
        ])
      ).stdout;
    await until(async () => (await journal()).includes('kubelet does not use the shim'), 'the shim to notice', 75);
    expect(Date.now() - begin).toBeLessThan(75_000);
    expect(await prints(resizectl('doctor'), 1)).toMatch(/^kubelet +warning +uses unix:\/\/\/run\/containerd/m);
    await done('install');
    expect(endpoint()).toBe(OURS);
    await until(
      async () => /^kubelet +ok +uses the shim/m.test((await resizectl('doctor')).text),
      'kubelet to be back',
    );
  },
  LONG,
);

test(
  'doctor reads the files of a kubelet that ends after each start, and names the one that sets the endpoint',
  async () => {
    const valid = readFileSync(CONFIG, 'utf8');
    writeFileSync(CONFIG, `${valid}podPidsLimit: many\n`);
    try {
      await execa('systemctl', ['restart', 'kubelet.service'], { reject: false });
      const loops =
        /^kubelet +failed +kubelet.service ends again after each start \(restarted by .*\), configured with the shim \(set by (.*)\)$/m;
      let printed = '';
      const isSeen = async (): Promise<boolean> => loops.test((printed = (await resizectl('doctor')).text));
      await until(isSeen, 'doctor to see the failing kubelet', 60);
      expect(loops.exec(printed)?.[1]).toBe(CONFIG);
      expect(printed).toContain(`${CONFIG}: ${OURS} (wins)`);
    } finally {
      writeFileSync(CONFIG, valid);
      await execa('systemctl', ['restart', 'kubelet.service']);
    }
    await until(
      async () => /^kubelet +ok +uses the shim/m.test((await resizectl('doctor')).text),
      'kubelet to be back',
    );
  },
  LONG,
);

test(
  'clients reach containerd and pods start with the bypass on, and the shim serves clients again with the bypass off',
  async () => {
    expect(await done('bypass', 'on')).toContain('bypass on: clients reach containerd without the shim');
    expect(await property(SERVICE, 'ActiveState')).toBe('inactive');
    await runsPod(cluster, 'bypassed');
    expect((await resizectl('doctor')).text).toMatch(/^bypass +warning +serves clients since .*, switched on by hand/m);
    expect(await done('bypass', 'off')).toContain('bypass off: the shim serves all clients');
    await usesShim();
    await runsPod(cluster, 'after-the-bypass');
  },
  LONG,
);

test(
  'four lines of the README restore the node by hand after the program is gone',
  async () => {
    const before = await container();
    const [, lines = ''] = /by hand[^]*?\n\n((?: {4}.*\n){4})/.exec(readFileSync('README.md', 'utf8')) ?? [];
    expect(lines).toContain('systemctl restart kubelet');
    await execa('systemctl', ['stop', 'cri-resize-shim.socket', SERVICE]);
    rmSync(PROGRAM, { recursive: true });
    const printed = await prints(fresh('doctor'), 2);
    expect(printed).toMatch(/this node has no container runtime$/m);
    for (const line of lines.trim().split('\n')) expect(printed).toContain(line.trim());
    await prints(run('sh', ['-c', lines]));
    expect(endpoint()).toBe(CONTAINERD);
    expect((await states()).slice(0, 2)).toEqual(['inactive', 'inactive']);
    await runsPod(cluster, 'by-hand');
    expect(await container()).toEqual(before);
  },
  LONG,
);

test(
  'resizectl uninstall removes the shim, and pods continue',
  async () => {
    await prints(fresh('install'));
    await usesShim();
    const before = await container();
    expect(await done('uninstall', '--dry-run')).toMatch(/^would: /m);
    expect(await states()).toEqual(on);
    await done('uninstall');
    expect([await states(), endpoint(), existsSync(PROGRAM)]).toEqual([off, CONTAINERD, false]);
    await runsPod(cluster, 'uninstalled');
    expect([await container(), memoryMax()]).toEqual([before, 208 * MiB]);
  },
  LONG,
);

test('the node stays Ready through installation, upgrade, drift, bypass and removal', async () => {
  await ready.stop();
  expect(ready.breaks).toEqual([]);
  // Without events, the watch would prove nothing: kubelet renews its Lease every 10 s.
  expect(ready.seen).toBeGreaterThan(12);
});
