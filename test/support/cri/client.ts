import { existsSync, readdirSync, readlinkSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { ClientReadableStream } from '@grpc/grpc-js';
import { Client, credentials, Metadata } from '@grpc/grpc-js';
import type { MethodDefinition } from '@grpc/proto-loader';
import { loadSync } from '@grpc/proto-loader';
import { MiB } from '../../../src/core/quantities/sizes.ts';

/** Resources in CRI's form. int64 values are numbers, which are large enough for these tests. */
export interface Resources {
  readonly cpu_period?: number;
  readonly cpu_quota?: number;
  readonly cpu_shares?: number;
  readonly memory_limit_in_bytes?: number;
  readonly memory_swap_limit_in_bytes?: number;
  readonly oom_score_adj?: number;
  readonly cpuset_cpus?: string;
  readonly cpuset_mems?: string;
  readonly hugepage_limits?: readonly { readonly page_size: string; readonly limit: number }[];
  readonly unified?: Readonly<Record<string, string>>;
}

export interface ReportedContainer {
  readonly id: string;
  readonly metadata: { readonly name: string; readonly attempt: number };
  readonly state: number;
  /** Nanoseconds since the epoch, or 0. As a number it is exact to a quarter of a microsecond. */
  readonly started_at: number;
  readonly finished_at: number;
  readonly exit_code: number;
  readonly reason: string;
  readonly resources: { readonly linux: Required<Resources> | null } | null;
}

type Method = MethodDefinition<object, object>;
type Service = Readonly<Record<string, Method>>;

let service: Service | undefined;

function methods(): Service {
  if (service === undefined) {
    const definition = loadSync(protoFile(), { keepCase: true, longs: Number, enums: Number, defaults: true });
    service = definition['runtime.v1.RuntimeService'] as unknown as Service;
  }
  return service;
}

function protoFile(): string {
  for (let folder = dirname(fileURLToPath(import.meta.url)); ; folder = dirname(folder)) {
    const file = join(folder, 'test/support/cri/cri-client.proto');
    if (existsSync(file)) return file;
    if (folder === dirname(folder)) throw new Error('test/support/cri/cri-client.proto is not in the checkout');
  }
}

/** A plain CRI client like kubelet's, for tests, the demo and the bench. */
export class CriClient {
  readonly #client: Client;

  /** @param address `unix:///run/containerd/containerd.sock` */
  constructor(readonly address: string) {
    this.#client = new Client(address, credentials.createInsecure(), {
      'grpc.max_receive_message_length': 16 * MiB,
      'grpc.default_authority': 'localhost',
      'grpc.initial_reconnect_backoff_ms': 100,
      'grpc.max_reconnect_backoff_ms': 1000,
      'grpc.use_local_subchannel_pool': 1,
    });
  }

  /** Makes a unary call. Rejects with grpc-js's ServiceError, whose message starts with the method. */
  call<Response extends object>(method: string, request: object, timeoutMs = 120_000): Promise<Response> {
    const definition = methodOf(method);
    return new Promise((resolve, reject) => {
      this.#client.makeUnaryRequest(
        definition.path,
        definition.requestSerialize,
        definition.responseDeserialize,
        request,
        new Metadata(),
        { deadline: Date.now() + timeoutMs },
        (error, response) => {
          if (error !== null) reject(Object.assign(error, { message: `${method}: ${error.message}` }));
          else resolve(response as Response);
        },
      );
    });
  }

  /** Sends bytes unchanged and returns the bytes of the answer. Rejects as {@link call} does. */
  raw(method: string, bytes: Buffer): Promise<Buffer> {
    const same = (value: Buffer): Buffer => value;
    return new Promise((resolve, reject) => {
      this.#client.makeUnaryRequest(methodOf(method).path, same, same, bytes, (error, response) =>
        error === null ? resolve(response ?? Buffer.alloc(0)) : reject(error),
      );
    });
  }

  /** Decodes a response. */
  decode(method: string, response: Buffer): object {
    return methodOf(method).responseDeserialize(response);
  }

  /** Opens a server stream of encoded messages. */
  rawStream(method: string): ClientReadableStream<Buffer> {
    const same = (value: Buffer): Buffer => value;
    return this.#client.makeServerStreamRequest(methodOf(method).path, same, same, Buffer.alloc(0));
  }

  /** Opens a server stream. */
  stream<Response extends object>(method: string, request: object): ClientReadableStream<Response> {
    const { path, requestSerialize, responseDeserialize } = methodOf(method);
    return this.#client.makeServerStreamRequest(
      path,
      requestSerialize,
      responseDeserialize as (bytes: Buffer) => Response,
      request,
    );
  }

  /** Waits until the socket answers, for the whole startup of the server. */
  ready(timeoutMs: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#client.waitForReady(Date.now() + timeoutMs, (error) => {
        if (error === undefined) resolve();
        else reject(error);
      });
    });
  }

  version(): Promise<{ runtime_name: string; runtime_version: string }> {
    return this.call('Version', {});
  }

  async containerStatus(id: string): Promise<ReportedContainer> {
    const { status } = await this.call<{ status: ReportedContainer }>('ContainerStatus', { container_id: id });
    return status;
  }

  /** Returns the pid of a running container's first process. */
  async pidOf(id: string): Promise<number> {
    const request = { container_id: id, verbose: true };
    const { info } = await this.call<{ info: Record<string, string> }>('ContainerStatus', request);
    return (JSON.parse(info.info ?? '{}') as { pid: number }).pid;
  }

  updateContainer(id: string, linux: Resources): Promise<object> {
    return this.call('UpdateContainerResources', { container_id: id, linux });
  }

  updatePod(sandboxId: string, resources: Resources, more: { overhead?: Resources } = {}): Promise<object> {
    return this.call('UpdatePodSandboxResources', { pod_sandbox_id: sandboxId, resources, ...more });
  }

  /** Runs a command in a container and returns its output. Throws if the command fails. */
  async exec(id: string, ...cmd: string[]): Promise<string> {
    const { stdout, stderr, exit_code } = await this.tryExec(id, ...cmd);
    if (exit_code !== 0) throw new Error(`${cmd.join(' ')}: exit code ${exit_code}: ${stderr}`);
    return stdout;
  }

  async tryExec(id: string, ...cmd: string[]): Promise<{ stdout: string; stderr: string; exit_code: number }> {
    const request = { container_id: id, cmd, timeout: 60 };
    const result = await this.call<{ stdout: Buffer; stderr: Buffer; exit_code: number }>('ExecSync', request);
    return { stdout: result.stdout.toString(), stderr: result.stderr.toString(), exit_code: result.exit_code };
  }

  close(): void {
    this.#client.close();
  }
}

function methodOf(name: string): Method {
  const method = methods()[name];
  if (method === undefined) throw new Error(`test/support/cri/cri-client.proto has no method ${name}`);
  return method;
}

/** Returns how many descriptors a process has open, without cgroup files: a shim keeps up to 512 of these open. */
export function descriptorsOf(pid: number, cgroupRoot = '/sys/fs/cgroup'): number {
  const folder = `/proc/${pid}/fd`;
  return readdirSync(folder).filter((descriptor) => !leadsBelow(`${folder}/${descriptor}`, cgroupRoot)).length;
}

function leadsBelow(link: string, root: string): boolean {
  try {
    return readlinkSync(link).startsWith(`${root}/`);
  } catch {
    // The descriptor was closed meanwhile.
    return false;
  }
}
