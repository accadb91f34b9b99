import { setTimeout as pause } from 'node:timers/promises';
import type { ServiceError } from '@grpc/grpc-js';
import { MiB } from '../../src/core/quantities/sizes.ts';
import type { CrashingShim } from '../crash/crashing-shim.ts';
import type { RunningPod } from '../support/cri/pod.ts';
import type { Random } from './random.ts';

/** A call that has ended. */
export interface Call {
  readonly kind: 'resize' | 'passed';
  readonly what: string;
  /** The gRPC status code; 0 for success. */
  readonly code: number;
  readonly message: string;
}

/** `any`: all updates. `lower`: only updates to the lowest values that a container has in the test. */
export type Updates = 'any' | 'lower';

/** Longer than the longest fault, so that a call without an answer is the shim's fault. */
const ANSWER_MS = 60_000;
const PAUSE_MS = 20;
const SIZES = [48, 64, 96, 128, 160] as const;
const CPUS = [5_000, 10_000, 20_000, 30_000] as const;

/** Clients that call through the shim until stopped: one resizes each pod, two make forwarded calls. */
export class Load {
  readonly calls: Call[] = [];
  readonly #shim: CrashingShim;
  readonly #random: Random;
  readonly #updates: Updates;
  readonly #workers: Promise<void>[];
  #isStopped = false;
  #waiting: (() => void)[] = [];

  /** @param options `updates`: the UpdateContainerResources calls that the clients also make, as kubelet does */
  constructor(
    shim: CrashingShim,
    pods: readonly RunningPod[],
    { random, updates }: { readonly random: Random; readonly updates: Updates },
  ) {
    this.#shim = shim;
    this.#random = random;
    this.#updates = updates;
    const repeat = async (call: () => Promise<void>): Promise<void> => {
      while (!this.#isStopped) {
        await call();
        await pause(PAUSE_MS);
      }
    };
    this.#workers = [
      ...pods.map((pod) => repeat(() => this.#resize(pod))),
      ...pods.map((pod) => repeat(() => this.#pass(pod))),
    ];
  }

  /** Waits until this many further calls of a kind have ended. */
  async more(count: number, kind: Call['kind']): Promise<void> {
    const ended = (): number => this.calls.filter((call) => call.kind === kind).length;
    for (const wanted = ended() + count; ended() < wanted; )
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  /** Waits until all calls have ended. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await Promise.all(this.#workers);
  }

  async #resize(pod: RunningPod): Promise<void> {
    const memory = () => this.#random.pick(SIZES);
    const cpu = () => this.#random.pick(CPUS);
    if (this.#random.next() < 0.4) {
      const [size, quota] = this.#updates === 'lower' ? [SIZES[0], CPUS[0]] : [memory(), cpu()];
      const linux = { memory_limit_in_bytes: size * MiB, cpu_quota: quota, cpu_period: 100_000 };
      const request = { container_id: pod.id('a'), linux };
      return this.#record('resize', 'UpdateContainerResources', () =>
        this.#shim.cri.call('UpdateContainerResources', request, ANSWER_MS),
      );
    }
    const containers = Object.fromEntries(
      ['a', 'b'].map((name) => [name, { limits: { memory: `${memory()}Mi`, cpu: `${cpu() / 100}m` } }]),
    );
    const request = { pod: { sandbox_id: pod.sandboxId }, containers };
    await this.#record('resize', 'ResizePod', () => this.#shim.api.call('ResizePod', request, Date.now() + ANSWER_MS));
  }

  async #pass(pod: RunningPod): Promise<void> {
    const [method, request] = this.#random.pick([
      ['Version', {}],
      ['ListContainers', {}],
      ['ContainerStatus', { container_id: pod.id('a') }],
      ['PodSandboxStatus', { pod_sandbox_id: pod.sandboxId, verbose: true }],
    ]);
    await this.#record('passed', method, () => this.#shim.cri.call(method, request, ANSWER_MS));
  }

  async #record(kind: Call['kind'], what: string, call: () => Promise<unknown>): Promise<void> {
    try {
      await call();
      this.calls.push({ kind, what, code: 0, message: '' });
    } catch (error) {
      const { code, message } = error as ServiceError;
      this.calls.push({ kind, what, code, message });
    }
    for (const wake of this.#waiting.splice(0)) wake();
  }
}
