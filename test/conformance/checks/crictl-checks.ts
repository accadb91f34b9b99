import assert from 'node:assert/strict';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import * as z from 'zod';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import type { CheckList, Client, Follower } from './checks.ts';
import { Found } from './checks.ts';

const podUid = 'c0f0a6ce-0000-4000-8000-000000000001';
const podCgroup = `/kubepods/burstable/pod${podUid}`;
const folder = '/run/conformance';
const image = 'localhost/e2e-test-images/busybox:1.29-2';
const containerId = /^[0-9a-f]{64}$/;

const info = z.object({
  status: z.object({ conditions: z.array(z.object({ type: z.string(), status: z.boolean() })) }),
  config: z.looseObject({}),
});
const inspected = z.object({
  status: z.object({
    id: z.string(),
    state: z.string(),
    exitCode: z.number().optional(),
    resources: z.object({
      linux: z.object({ memoryLimitInBytes: z.coerce.number(), cpuQuota: z.coerce.number() }).partial(),
    }),
  }),
});
const inspectedPod = z.object({
  status: z.object({ id: z.string(), state: z.string(), network: z.object({ ip: z.string() }) }),
});
const value = z.object({ value: z.coerce.number() });
const stats = z.object({
  stats: z.array(
    z.object({
      attributes: z.object({ id: z.string() }),
      cpu: z.object({ usageCoreNanoSeconds: value }),
      memory: z.object({ workingSetBytes: value }),
    }),
  ),
});

/** An operator's crictl actions through the shim: a pod's life in two halves. Other clients inspect in between. */
export class CrictlChecks {
  private readonly pod = new Found<string>('pod');
  private readonly container = new Found<string>('container');
  private events: Follower | undefined;

  constructor(
    private readonly list: CheckList,
    private readonly through: Client,
    private readonly direct: Client,
    private readonly containerdVersion: string,
  ) {}

  get runningContainer(): string {
    return this.container.get();
  }

  /** Starts a pod with one container and inspects it in all ways. */
  async start(): Promise<void> {
    await writeConfigs();
    await this.runtime();
    await this.images();
    await this.create();
    await this.look();
    await this.exec();
    await this.update();
  }

  /** Stops and removes the pod. */
  async finish(): Promise<void> {
    const { list, through } = this;
    await list.check('crictl stop', async () => {
      await through.run('stop', '--timeout', '1', this.container.get());
      assert.equal((await this.inspect()).state, 'CONTAINER_EXITED');
    });
    await list.check('crictl rm', async () => {
      const id = this.container.get();
      await through.run('rm', id);
      const { stderr, exitCode } = await through.attempt(['inspect', id]);
      assert.notEqual(exitCode, 0);
      assert.match(stderr, /NotFound/);
      assert.equal(message(stderr), message((await this.direct.attempt(['inspect', id])).stderr));
    });
    await list.check('crictl events', async () => {
      const id = this.container.get();
      assert.ok(this.events, 'crictl events was not started');
      for (const event of ['CREATED', 'STARTED', 'STOPPED', 'DELETED']) {
        await this.events.until(new RegExp(`"${id}".{0,80}"CONTAINER_${event}_EVENT"`, 's'));
      }
      await this.events.end();
    });
    await list.check('crictl stopp', async () => {
      const id = this.pod.get();
      await through.run('stopp', id);
      assert.equal((await this.inspectPod()).state, 'SANDBOX_NOTREADY');
    });
    await list.check('crictl rmp', async () => {
      const id = this.pod.get();
      await through.run('rmp', id);
      assert.equal(await through.run('pods', '--quiet', '--id', id), '');
    });
    await list.check('crictl rmi', async () => {
      await through.run('rmi', image);
      assert.doesNotMatch(await through.run('images'), /e2e-test-images\/busybox/);
    });
  }

  private async runtime(): Promise<void> {
    const { list, through } = this;
    await list.check('crictl version', async () => {
      const text = await through.run('version');
      assert.match(text, /^RuntimeName: +containerd$/m);
      assert.match(text, /^RuntimeApiVersion: +v1$/m);
      assert.ok(text.includes(this.containerdVersion), `${text} is not about containerd ${this.containerdVersion}`);
    });
    await list.check('crictl info', async () => {
      const { status } = info.parse(JSON.parse(await through.run('info')));
      const ready = status.conditions.filter(({ type }) => ['RuntimeReady', 'NetworkReady'].includes(type));
      assert.deepEqual(
        ready.map((condition) => condition.status),
        [true, true],
      );
    });
    // containerd before 2.0 does not implement this call, but the shim answers it.
    await list.check('crictl runtime-config', async () => {
      assert.match(await through.run('runtime-config'), /CGROUPFS/);
    });
  }

  private async images(): Promise<void> {
    const { list, through } = this;
    await list.check('crictl pull', async () => {
      const answer = await through.run('pull', image);
      assert.match(answer, /Image is up to date for sha256:[0-9a-f]{64}/);
    });
    await list.check('crictl images, inspecti, imagefsinfo', async () => {
      for (const args of [['images'], ['inspecti', image]]) {
        assert.match(await through.run(...args), /e2e-test-images\/busybox/);
        assert.equal(await through.run(...args), await this.direct.run(...args));
      }
      assert.match(await through.run('imagefsinfo'), /usedBytes/);
    });
  }

  private async create(): Promise<void> {
    const { list, through } = this;
    const config = (name: string): string => join(folder, `${name}.json`);
    await list.check('crictl runp', async () => {
      const id = (await through.run('runp', config('pod'))).trim();
      assert.match(id, containerId);
      this.pod.set(id);
      const pod = await this.inspectPod();
      assert.equal(pod.state, 'SANDBOX_READY');
      assert.match(pod.network.ip, /^10\.88\./);
    });
    await list.check('crictl events (start)', async () => {
      this.events = through.follow('events');
      await this.events.firstOutput(async () => {
        const id = (await through.run('create', this.pod.get(), config('bystander'), config('pod'))).trim();
        await through.run('rm', id);
      });
    });
    await list.check('crictl create', async () => {
      const id = (await through.run('create', this.pod.get(), config('container'), config('pod'))).trim();
      assert.match(id, containerId);
      this.container.set(id);
      assert.equal((await this.inspect()).state, 'CONTAINER_CREATED');
    });
    await list.check('crictl start', async () => {
      assert.equal((await through.run('start', this.container.get())).trim(), this.container.get());
      assert.equal((await this.inspect()).state, 'CONTAINER_RUNNING');
    });
  }

  private async look(): Promise<void> {
    const { list, through } = this;
    await list.check('crictl ps, pods', async () => {
      assert.equal((await through.run('ps', '--quiet', '--no-trunc')).trim(), this.container.get());
      assert.equal((await through.run('pods', '--quiet', '--no-trunc')).trim(), this.pod.get());
    });
    await list.check('crictl logs', async () => {
      const logs = through.follow('logs', '--follow', this.container.get());
      await logs.until('line 2\n');
      await logs.end();
      assert.equal(logs.output, 'line 1\nline 2\n');
    });
    await list.check('crictl stats, statsp', async () => {
      const answer = stats.parse(JSON.parse(await through.run('stats', '--output', 'json', this.container.get())));
      const [container] = answer.stats;
      assert.equal(container?.attributes.id, this.container.get());
      assert.ok(container.memory.workingSetBytes.value > 0, 'no memory is used');
      assert.ok(container.cpu.usageCoreNanoSeconds.value > 0, 'no CPU time is used');
      assert.ok((await through.run('statsp', '--output', 'json')).includes(this.pod.get()), 'statsp lacks the pod');
    });
  }

  private async exec(): Promise<void> {
    const { list, through } = this;
    const script = (code: number): string[] => ['sh', '-c', `cat; echo out; echo err >&2; exit ${code}`];
    await list.check('crictl exec -s', async () => {
      const succeeding = ['exec', '-s', this.container.get(), ...script(0)];
      const good = await through.attempt(succeeding);
      assert.match(good.stdout, /^out$/m);
      assert.match(good.stdout + good.stderr, /^err$/m);
      assert.deepEqual(good, await this.direct.attempt(succeeding));
      const failing = ['exec', '-s', this.container.get(), ...script(3)];
      const answer = await through.attempt(failing);
      assert.notEqual(answer.exitCode, 0);
      assert.equal(message(answer.stderr), message((await this.direct.attempt(failing)).stderr));
    });
    await list.check('crictl exec -i (streaming)', async () => {
      const answer = await through.attempt(['exec', '-i', this.container.get(), ...script(3)], 'in\n');
      assert.equal(answer.stdout, 'in\nout\n');
      assert.match(answer.stderr, /^err$/m);
      assert.notEqual(answer.exitCode, 0);
    });
  }

  private async update(): Promise<void> {
    const limits = { memoryLimitInBytes: 48 * MiB, cpuQuota: 25_000 };
    await this.list.check('crictl update', async () => {
      const wanted = ['--memory', String(limits.memoryLimitInBytes), '--cpu-quota', String(limits.cpuQuota)];
      await this.through.run('update', ...wanted, this.container.get());
      const cgroup = join('/sys/fs/cgroup', podCgroup, this.container.get());
      assert.equal((await readFile(join(cgroup, 'memory.max'), 'utf8')).trim(), String(limits.memoryLimitInBytes));
      assert.equal((await readFile(join(cgroup, 'cpu.max'), 'utf8')).trim(), `${limits.cpuQuota} 100000`);
    });
    await this.list.check('crictl inspect', async () => {
      const { id, resources } = await this.inspect();
      assert.equal(id, this.container.get());
      const { memoryLimitInBytes, cpuQuota } = resources.linux;
      assert.deepEqual({ memoryLimitInBytes, cpuQuota }, limits);
    });
    await this.list.check('crictl inspectp', async () => {
      const args = ['inspectp', this.pod.get()];
      assert.equal((await this.inspectPod()).id, this.pod.get());
      // The shim adds one key and changes no other.
      const { 'cri-resize-shim': own, ...rest } = z
        .record(z.string(), z.unknown())
        .parse(JSON.parse(await this.through.run(...args)));
      assert.equal(z.object({ state: z.string() }).parse(own).state, 'Completed');
      assert.deepEqual(rest, JSON.parse(await this.direct.run(...args)));
    });
  }

  private async inspect(): Promise<z.output<typeof inspected>['status']> {
    return inspected.parse(JSON.parse(await this.through.run('inspect', this.container.get()))).status;
  }

  private async inspectPod(): Promise<z.output<typeof inspectedPod>['status']> {
    return inspectedPod.parse(JSON.parse(await this.through.run('inspectp', this.pod.get()))).status;
  }
}

/** The error of the server, without the times and process numbers that crictl adds. */
function message(stderr: string): string {
  return stderr
    .replaceAll(/time="[^"]*"/g, '')
    .replaceAll(/^[EW]\d{4} \S+ +\d+ /gm, '')
    .trim();
}

async function writeConfigs(): Promise<void> {
  const logFolder = join(folder, 'logs');
  await mkdir(logFolder, { recursive: true });
  await mkdir(join('/sys/fs/cgroup', podCgroup), { recursive: true });
  const write = (name: string, config: object): Promise<void> =>
    writeFile(join(folder, `${name}.json`), JSON.stringify(config));
  await write('pod', {
    metadata: { name: 'conformance', namespace: 'default', uid: podUid, attempt: 0 },
    log_directory: logFolder,
    linux: { cgroup_parent: podCgroup },
  });
  const container = (name: string, script: string): object => ({
    metadata: { name, attempt: 0 },
    image: { image },
    command: ['sh', '-c', script],
    log_path: `${name}.log`,
    linux: { resources: { memory_limit_in_bytes: 32 * MiB, cpu_period: 100_000, cpu_quota: 50_000 } },
  });
  await write('container', container('main', 'echo line 1; echo line 2; exec top -b -d 3600 >/dev/null'));
  await write('bystander', container('bystander', 'true'));
}
