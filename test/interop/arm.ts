import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Service } from './process.ts';
import { Relay } from './relay.ts';

export type Side = 'direct' | 'through';

export interface ArmOptions {
  readonly side: Side;
  /** grpc-go's interop server. */
  readonly server: string;
  /** The program of the shim. */
  readonly shim: string;
  /** The folder for logs. */
  readonly logs: string;
  readonly signal: AbortSignal;
}

/**
 * A server that witnesses connect to by TCP, direct or through the shim. Both sides pass the same relays:
 *
 *     witness -TCP-> relay -unix-> (shim -unix->) relay -TCP-> server
 */
export class Arm {
  readonly #relays: Relay[] = [];
  readonly #services: Service[] = [];
  #port = 0;

  private constructor(
    private readonly options: ArmOptions,
    /** The folder for sockets, whose paths must be short. */
    private readonly folder: string,
  ) {}

  static async open(options: ArmOptions): Promise<Arm> {
    await mkdir(options.logs, { recursive: true });
    const arm = new Arm(options, await mkdtemp(join(tmpdir(), 'interop-')));
    try {
      await arm.#start();
    } catch (error) {
      await arm.close();
      throw error;
    }
    return arm;
  }

  /** On the loopback address. */
  get port(): number {
    return this.#port;
  }

  async #start(): Promise<void> {
    const { side, server, logs, signal } = this.options;
    const service = await Service.start({
      what: "grpc-go's interop server",
      file: server,
      args: ['--port', '0'],
      env: { GRPC_GO_LOG_SEVERITY_LEVEL: 'info' },
      log: join(logs, 'server.log'),
      ready: /interop server listening on \S*:(\d+)$/,
      signal,
    });
    this.#services.push(service);
    const backend = join(this.folder, 'backend.sock');
    this.#relays.push(await Relay.open({ path: backend }, { host: '127.0.0.1', port: Number(service.captured) }));
    const front = await Relay.open({}, { path: side === 'direct' ? backend : await this.#startShim(backend) });
    this.#relays.push(front);
    this.#port = front.port;
  }

  /** Returns the socket of the shim. */
  async #startShim(backend: string): Promise<string> {
    const { shim, logs, signal } = this.options;
    const socket = join(this.folder, 'shim/shim.sock');
    const kubeletRoot = join(this.folder, 'kubelet');
    await mkdir(kubeletRoot);
    const service = await Service.start({
      what: 'the shim',
      file: process.execPath,
      args: [
        ...[shim, '--listen', `unix://${socket}`, '--container-runtime-endpoint', `unix://${backend}`],
        ...['--state-folder', join(this.folder, 'state'), '--kubelet-root', kubeletRoot, '--resize-listen', ''],
      ],
      log: join(logs, 'shim.log'),
      ready: /"msg":"serving"/,
      signal,
    });
    this.#services.push(service);
    return socket;
  }

  /** Stops everything. Returns what is wrong with the end of the programs. */
  async close(): Promise<readonly string[]> {
    const faults: string[] = [];
    for (const service of this.#services.toReversed()) {
      const fault = await service.stop();
      if (fault !== undefined) faults.push(fault);
    }
    for (const relay of this.#relays) await relay.close();
    await rm(this.folder, { recursive: true, force: true });
    return faults;
  }
}
