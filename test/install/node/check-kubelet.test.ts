import { readFileSync, symlinkSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Node } from '../../../src/install/host/site.ts';
import { checkKubelet, kubeletAfterInstall } from '../../../src/install/node/check-kubelet.ts';
import { diagnose } from '../../../src/install/node/checks.ts';
import type { Finding } from '../../../src/install/node/finding.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

// The properties are those that systemd 257 prints. test/e2e/systemd/kubelet-unit.test.ts asks systemd itself.
let fake: FakeInstallNode;
beforeEach(() => (fake = new FakeInstallNode()));
afterEach(() => fake.remove());

async function found(check: string, change: Partial<Node> = {}): Promise<Finding> {
  const all = await diagnose({ ...fake.node, ...change });
  return all.find((finding) => finding.check === check)!;
}

test('check kubelet reports whether kubelet uses the shim', async () => {
  fake.unit({ commandLine: ['kubelet', '--container-runtime-endpoint=unix:///run/containerd/containerd.sock'] });
  expect(await found('kubelet')).toMatchObject({
    result: 'warning',
    found: 'uses unix:///run/containerd/containerd.sock, not the shim (set by --container-runtime-endpoint)',
    remedy: 'run resizectl install: it starts the shim, and then sets the endpoint',
  });
  const { listen } = fake.node;
  symlinkSync(fake.folder, fake.at('link'));
  for (const address of [`unix://${listen}`, `unix:${listen}`, listen, `unix://${fake.at('link/shim.sock')}`]) {
    fake.unit({ commandLine: ['kubelet', `--container-runtime-endpoint=${address}`] });
    expect(await found('kubelet')).toMatchObject({
      result: 'ok',
      found: 'uses the shim (set by --container-runtime-endpoint)',
    });
  }
  fake.unit({ state: 'inactive' });
  expect(await found('kubelet')).toMatchObject({ result: 'warning', found: 'kubelet.service is inactive' });
  fake.unit(undefined);
  expect(await found('kubelet')).toMatchObject({ result: 'warning', found: 'no unit kubelet.service' });
});

const RESTARTED = { MESSAGE_ID: '5eb03494b6584870a536b337290809b3' };
const EXITED = { MESSAGE_ID: '98e322203f7a4ed290d09fe03c09fe15', EXIT_CODE: 'exited', EXIT_STATUS: '1' };
const FAILED = { MESSAGE_ID: 'd9b373ed55a64feb8242e02dbe79a49c', UNIT_RESULT: 'exit-code' };
const times = (count: number): object[] => Array.from({ length: count }, () => [EXITED, FAILED, RESTARTED]).flat();

const LOOP =
  'kubelet.service ends again after each start (restarted by systemd 3 times in all, the journal does not say when, last end: exit code 1)';

describe('check kubelet for a kubelet that does not run', () => {
  const kubeadm = (
    subState: string,
    words = '/usr/bin/kubelet $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS',
  ): string[] => [
    ...['Result=exit-code', 'NRestarts=3', 'ExecMainCode=1', 'ExecMainStatus=1'],
    `SubState=${subState}`,
    `ExecStart={ path=${words.split(' ', 1)[0] ?? ''} ; argv[]=${words} ; ignore_errors=no ; pid=0 }`,
    `Environment=KUBELET_CONFIG_ARGS=--config=${fake.at('kubelet.yaml')}`,
    `EnvironmentFiles=${fake.at('kubeadm-flags.env')} (ignore_errors=yes)`,
    `EnvironmentFiles=${fake.at('none')} (ignore_errors=yes)`,
  ];
  const sets = (endpoint: string): string =>
    `apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncontainerRuntimeEndpoint: ${endpoint}\n`;
  const kubelet = (state: string, properties: readonly string[]): Promise<object> => {
    fake.unit({ state, properties });
    return found('kubelet');
  };

  test('check kubelet fails for a kubelet that waits for its next restart in a loop, with its configured endpoint', async () => {
    fake.put('kubelet.yaml', sets(`unix://${fake.node.listen}`));
    expect(await kubelet('activating', kubeadm('auto-restart'))).toMatchObject({
      result: 'failed',
      found: `${LOOP}, configured with the shim (set by ${fake.at('kubelet.yaml')})`,
      remedy: 'journalctl -u kubelet.service',
      details: [
        'the default of kubelet: unix:///run/containerd/containerd.sock',
        `${fake.at('kubelet.yaml')}: unix://${fake.node.listen} (wins)`,
      ],
    });
  });

  test('check kubelet warns about a stopped kubelet, with the endpoint flag of its environment file', async () => {
    fake.put('kubelet.yaml', sets(`unix://${fake.node.listen}`));
    fake.put('kubeadm-flags.env', 'KUBELET_KUBEADM_ARGS="--v=2 --container-runtime-endpoint=unix:///other.sock"\n');
    expect(await kubelet('inactive', kubeadm('dead'))).toMatchObject({
      result: 'warning',
      found:
        'kubelet.service is inactive, configured with unix:///other.sock, not the shim (set by --container-runtime-endpoint)',
      remedy: 'systemctl start kubelet.service',
    });
  });

  test('check kubelet fails for a kubelet that cannot read its configuration', async () => {
    fake.put('kubelet.yaml', 'kind: Pod\n');
    expect(await kubelet('activating', kubeadm('auto-restart'))).toMatchObject({
      result: 'failed',
      found: `${LOOP}: ${fake.at('kubelet.yaml')} is not a KubeletConfiguration`,
      remedy: `repair ${fake.at('kubelet.yaml')}`,
    });
  });

  test('check kubelet fails without an endpoint for a kubelet that another program starts', async () => {
    expect(await kubelet('activating', kubeadm('auto-restart', '/usr/local/bin/k3s server'))).toMatchObject({
      result: 'failed',
      found: LOOP,
      remedy: 'journalctl -u kubelet.service',
    });
    expect(await kubelet('failed', [])).toMatchObject({ result: 'failed', found: 'kubelet.service is failed' });
    const ended = ['Result=signal', 'NRestarts=5', 'ExecMainCode=2', 'ExecMainStatus=9'];
    expect(await kubelet('failed', ended)).toMatchObject({
      result: 'failed',
      found: 'kubelet.service is failed: signal 9 (SIGKILL), after systemd had restarted it 5 times',
    });
  });

  test('check kubelet warns about a kubelet that has ended once and that systemd starts again', async () => {
    const once = ['SubState=auto-restart', 'Result=signal', 'NRestarts=0', 'ExecMainCode=2', 'ExecMainStatus=9'];
    expect(await kubelet('activating', once)).toMatchObject({
      result: 'warning',
      found: 'kubelet.service has ended, and systemd starts it again, last end: signal 9 (SIGKILL)',
      remedy: 'journalctl -u kubelet.service',
    });
  });

  test.each([
    ['auto-restart', [FAILED]],
    ['auto-restart-queued', []],
    ['start-pre', []],
  ])(
    'check kubelet fails for a kubelet that fails before its main process starts, in the state %s',
    async (subState, last) => {
      const properties = ['NRestarts=4', 'Result=resources', 'ExecMainCode=0', `SubState=${subState}`];
      fake.unit({ state: 'activating', properties, journal: [...times(4), ...last] });
      expect(await found('kubelet')).toMatchObject({
        result: 'failed',
        found:
          'kubelet.service ends again after each start (restarted by systemd 4 times in the last 10 min, last end: result resources)',
      });
    },
  );

  test('check kubelet counts only the ends after a start by hand in the pause before a restart', async () => {
    const properties = (subState: string): string[] => ['NRestarts=4', 'Result=exit-code', `SubState=${subState}`];
    fake.unit({ state: 'activating', properties: properties('start-pre'), journal: [...times(4), EXITED, FAILED] });
    expect(await found('kubelet')).toMatchObject({ result: 'warning', found: 'kubelet.service is activating' });
    const ends = [...times(4), EXITED, FAILED, EXITED, FAILED];
    fake.unit({ state: 'activating', properties: properties('auto-restart'), journal: ends });
    expect(await found('kubelet')).toMatchObject({
      result: 'warning',
      found: 'kubelet.service has ended, and systemd starts it again, last end: result exit-code',
    });
  });

  test('check kubelet only warns about a kubelet that ended before its shim was started', async () => {
    fake.put('kubelet.yaml', sets(`unix://${fake.node.listen}`));
    const now = Number(process.hrtime.bigint() / 1000n);
    const time = { __MONOTONIC_TIMESTAMP: String(now - 9_000_000) };
    const journal = [...times(3).map((entry) => ({ ...entry, ...time })), { ...EXITED, ...time }];
    const shim = ['ActiveState=active', `ActiveEnterTimestampMonotonic=${now - 5_000_000}`];
    fake.unit({ state: 'activating', properties: kubeadm('auto-restart'), journal, shim });
    expect(await found('kubelet')).toMatchObject({
      result: 'warning',
      found: `kubelet.service has ended, and systemd starts it again, last end: exit code 1, configured with the shim (set by ${fake.at('kubelet.yaml')})`,
    });
  });

  test('check kubelet warns about a kubelet whose first start is not complete', async () => {
    expect(await kubelet('activating', ['SubState=start-pre', 'Result=success'])).toMatchObject({
      result: 'warning',
      found: 'kubelet.service is activating',
      remedy: 'journalctl -u kubelet.service',
    });
  });

  test('check kubelet fails if an environment file of kubelet is missing, unless the file is optional', async () => {
    const file = fake.at('kubeadm-flags.env');
    const properties = (ignore: string): readonly string[] => [
      'SubState=dead',
      'ExecStart={ path=/usr/bin/kubelet ; argv[]=/usr/bin/kubelet $A ; ignore_errors=no ; pid=0 }',
      `EnvironmentFiles=${file} (ignore_errors=${ignore})`,
    ];
    expect(await kubelet('inactive', properties('no'))).toMatchObject({
      result: 'failed',
      found: `kubelet.service is inactive, and systemd does not start it: EnvironmentFile: ${file} does not exist`,
      remedy: `repair ${file}, or let the unit start without it: EnvironmentFile=-${file}`,
    });
    expect(await kubelet('inactive', properties('yes'))).toMatchObject({
      result: 'warning',
      found: expect.stringMatching(/set by the default of kubelet\)$/) as string,
    });
  });

  test('check kubelet finds a flag in a value of several lines, in the last file of a pattern', async () => {
    fake.put('envs/10.env', 'A=--container-runtime-endpoint=unix:///first.sock\n');
    fake.put('envs/20.env', `A="--v=2\n--container-runtime-endpoint=unix://${fake.node.listen}"\n`);
    const properties = [
      'ExecStart={ path=/usr/bin/kubelet ; argv[]=/usr/bin/kubelet $A ; ignore_errors=no ; pid=0 }',
      `EnvironmentFiles=${fake.at('envs/*.env')} (ignore_errors=no)`,
    ];
    expect(await kubelet('inactive', properties)).toMatchObject({
      found: 'kubelet.service is inactive, configured with the shim (set by --container-runtime-endpoint)',
    });
  });
});

describe('check kubelet for a running kubelet', () => {
  /** @param since how long ago it started, in seconds */
  const kubelet = (restarts: number, since: number, journal: readonly object[] = []): Promise<Finding> => {
    const start = Number(process.hrtime.bigint() / 1000n) - since * 1_000_000 - 500_000;
    const commandLine = ['kubelet', `--container-runtime-endpoint=unix://${fake.node.listen}`];
    const properties = [
      ...['SubState=running', 'Result=success', 'ExecMainCode=0', 'ExecMainStatus=0'],
      ...[`NRestarts=${restarts}`, `ExecMainStartTimestampMonotonic=${start}`],
    ];
    fake.unit({ commandLine, properties, journal });
    return found('kubelet');
  };
  const USES = 'uses the shim (set by --container-runtime-endpoint)';

  test('check kubelet fails for a running kubelet that ends again after each start', async () => {
    expect(await kubelet(41, 3, times(12))).toMatchObject({
      result: 'failed',
      found: `kubelet.service ends again after each start (restarted by systemd 12 times in the last 10 min, 41 times in all, last end: exit code 1), and has run for 3 s now; ${USES}`,
      remedy: 'journalctl -u kubelet.service',
    });
  });

  test('check kubelet ignores restarts before a person or the installer has restarted kubelet', async () => {
    expect(await kubelet(0, 3, times(12))).toMatchObject({ result: 'ok', found: USES, remedy: '' });
  });

  test('check kubelet reports how long a kubelet has run that was killed once', async () => {
    expect(await kubelet(1, 70, [RESTARTED])).toMatchObject({
      result: 'ok',
      found: `${USES}; kubelet.service has run for 1 min 10 s, restarted by systemd once in the last 10 min`,
      remedy: '',
    });
  });

  test('check kubelet warns about a kubelet that has ended twice, or that has run for minutes after many ends', async () => {
    for (const [count, since] of [
      [2, 3],
      [9, 400],
    ] as const)
      expect(await kubelet(count, since, times(count))).toMatchObject({
        result: 'warning',
        found: expect.stringMatching(new RegExp(`has run for .*, restarted by systemd ${count} times`)) as string,
        remedy: 'journalctl -u kubelet.service',
      });
  });

  test('check kubelet distinguishes restarts of the last 10 minutes from earlier ones', async () => {
    expect(await kubelet(9, 601, times(9))).toMatchObject({ result: 'ok', found: USES });
    const { result, found: says } = await kubelet(9, 30, [RESTARTED]);
    expect([result, says]).toEqual([
      'warning',
      `${USES}; kubelet.service has run for 30 s, restarted by systemd once in the last 10 min, 9 times in all`,
    ]);
  });

  test('check kubelet ignores the restarts before kubeadm join has started kubelet in the pause before a restart', async () => {
    const looped = (count: number): object[] =>
      Array.from({ length: count }, (_, index) => [
        EXITED,
        FAILED,
        { ...RESTARTED, N_RESTARTS: String(index + 1) },
      ]).flat();
    const joined = [...looped(12), EXITED, FAILED];
    expect(await kubelet(12, 3, joined)).toMatchObject({ result: 'ok', found: USES, remedy: '' });
    expect(await kubelet(12, 400, joined)).toMatchObject({ result: 'ok', found: USES });
    // systemd killed and restarted it once since then.
    const killed = [...joined, EXITED, FAILED, { ...RESTARTED, N_RESTARTS: '13' }];
    expect(await kubelet(13, 3, killed)).toMatchObject({
      result: 'ok',
      found: `${USES}; kubelet.service has run for 3 s, restarted by systemd once in the last 10 min, last end: exit code 1`,
    });
    // The journal is delayed: systemd has already restarted kubelet a 13th time.
    expect(await kubelet(13, 3, joined)).toMatchObject({ result: 'failed' });
  });

  test('check kubelet fails for a kubelet in a restart loop, also if it ends while the journal is read', async () => {
    await kubelet(12, 3, [...times(12), EXITED, FAILED]);
    fake.put('after', readFileSync(fake.at('properties'), 'utf8').replace('MainPID=42', 'MainPID=0'));
    fake.program('journalctl', `cat ${fake.at('journal')}; cp ${fake.at('after')} ${fake.at('properties')}`);
    expect(await checkKubelet(fake.node)).toMatchObject({ result: 'failed' });
  });

  test('check kubelet only warns about a restart loop if the shim of kubelet has started since', async () => {
    const now = Number(process.hrtime.bigint() / 1000n);
    const ended = (secondsAgo: number): object[] => [
      ...[EXITED, FAILED],
      { ...RESTARTED, __MONOTONIC_TIMESTAMP: String(now - secondsAgo * 1_000_000) },
    ];
    const start = `ActiveEnterTimestampMonotonic=${now - 20_000_000}`;
    const withShim = (shim: readonly string[], listen: string, ...secondsAgo: readonly number[]): Promise<Finding> => {
      const commandLine = ['kubelet', `--container-runtime-endpoint=unix://${listen}`];
      const properties = [
        ...['SubState=running', 'Result=success', 'ExecMainCode=0', 'ExecMainStatus=0'],
        ...[`NRestarts=${secondsAgo.length}`, `ExecMainStartTimestampMonotonic=${now - 3_500_000}`],
      ];
      fake.unit({ commandLine, properties, shim, journal: secondsAgo.flatMap(ended) });
      return checkKubelet(fake.node);
    };
    const active = ['ActiveState=active', start];
    const { listen } = fake.node;
    const says = (since: string): string =>
      `${USES}; kubelet.service has run for 3 s, restarted by systemd ${since} since the shim started, last end: exit code 1`;
    expect(await withShim(active, listen, 60, 50, 40, 30)).toMatchObject({
      result: 'warning',
      found: says('4 times in the last 10 min, not'),
    });
    expect(await withShim(active, listen, 60, 50, 40, 4)).toMatchObject({
      result: 'warning',
      found: says('4 times in the last 10 min, once'),
    });
    // kubelet also ends with this shim; the shim does not run; kubelet uses another runtime.
    expect(await withShim(active, listen, 60, 15, 10, 4)).toMatchObject({ result: 'failed', isLoopAtShim: true });
    expect(await withShim(['ActiveState=failed', start], listen, 60, 50, 40, 30)).toMatchObject({ result: 'failed' });
    expect(await withShim(active, '/run/other.sock', 60, 50, 40, 30)).toMatchObject({ result: 'failed' });
  });

  test('check kubelet at most warns if nothing stores the journal, because a person may have started kubelet', async () => {
    expect(await kubelet(5, 3)).toMatchObject({
      result: 'warning',
      found: `${USES}; kubelet.service has run for 3 s, restarted by systemd 5 times in all, the journal does not say when`,
      remedy: 'journalctl -u kubelet.service',
    });
    expect(await kubelet(1, 3)).toMatchObject({ result: 'ok' });
    expect(await kubelet(5, 601)).toMatchObject({ result: 'ok', found: USES });
  });
});

test('check kubelet reads a kubelet again if it ends while it is read', async () => {
  fake.unit({ state: 'activating', properties: ['SubState=auto-restart', 'Result=success', 'ExecMainCode=1'] });
  const properties = readFileSync(fake.at('properties'), 'utf8');
  fake.put('now', properties.replace('MainPID=0', 'MainPID=4711'));
  fake.systemctl(`case "$*" in
show-environment) ;;
*) cat ${fake.at('now')}; cat ${fake.at('properties')} > ${fake.at('now')} ;;
esac`);
  expect(await checkKubelet(fake.node)).toMatchObject({
    found: 'kubelet.service has ended, and systemd starts it again, last end: result success',
  });
});

describe('repair of a kubelet that ends again after each start', () => {
  /** @param endpoint the endpoint in kubelet's command line */
  const loop = async (endpoint: string, isAlive: boolean, state = 'activating'): Promise<Finding> => {
    const words = ['/usr/bin/kubelet', `--container-runtime-endpoint=${endpoint}`];
    const start = Number(process.hrtime.bigint() / 1000n) - 3_000_000;
    const command = `ExecStart={ path=${words[0]!} ; argv[]=${words.join(' ')} ; ignore_errors=no ; pid=0 }`;
    fake.unit({
      ...(isAlive ? { commandLine: words } : { state }),
      properties: [
        ...['NRestarts=12', `SubState=${isAlive ? 'running' : 'auto-restart'}`, command],
        `ExecMainStartTimestampMonotonic=${start}`,
      ],
      journal: times(12),
    });
    return checkKubelet(fake.node);
  };

  test.each([true, false])(
    'an installation may repair a kubelet in a restart loop only if it uses the shim, alive: %s',
    async (isAlive) => {
      const ours = `unix://${fake.node.listen}`;
      expect(await loop(ours, isAlive)).toMatchObject({ result: 'failed', isLoopAtShim: true });
      expect(await loop('unix:///other.sock', isAlive)).not.toHaveProperty('isLoopAtShim');
      // In the state `failed`, systemd does not start kubelet again.
      if (!isAlive) expect(await loop(ours, false, 'failed')).not.toHaveProperty('isLoopAtShim');
    },
  );

  test('an installation reports a kubelet that does not run after it', async () => {
    const before = [await loop(`unix://${fake.node.listen}`, true)];
    expect(await kubeletAfterInstall(fake.node, before)).toBe(
      'kubelet.service ended again after each start until now: see resizectl doctor',
    );
    expect(await kubeletAfterInstall(fake.node, [])).toBeUndefined();
    await loop(`unix://${fake.node.listen}`, false);
    for (const findings of [before, []])
      expect(await kubeletAfterInstall(fake.node, findings)).toBe(
        'kubelet.service does not run (activating): see resizectl doctor',
      );
    fake.systemctl('echo "no bus" >&2; exit 1');
    expect(await kubeletAfterInstall(fake.node, before)).toBe(
      'whether kubelet.service runs is unknown: systemctl: no bus',
    );
  });
});
