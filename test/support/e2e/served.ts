import { CriClient } from '../cri/client.ts';
import { ShimProcess } from '../cri/shim.ts';
import { ResizeClient } from '../resize-api/client.ts';

export interface ServedOptions {
  /** The name of the folder under /run for the sockets. */
  readonly name: string;
  /** The CRI socket of the shim. Default: its usual socket. */
  readonly listen?: string;
  readonly args?: readonly string[];
}

/** A shim that serves both interfaces, with a client of each. */
export class Served {
  private constructor(
    readonly shim: ShimProcess,
    readonly cri: CriClient,
    readonly api: ResizeClient,
  ) {}

  static async start({ name, listen, args = [] }: ServedOptions): Promise<Served> {
    const resize = `/run/${name}/resize.sock`;
    const shim = await ShimProcess.start({
      ...(listen !== undefined && { listen }),
      args: ['--resize-listen', resize, ...args],
    });
    return new Served(shim, new CriClient(shim.address), new ResizeClient(resize));
  }

  /** Throws unless the shim exits with code 0. */
  async stop(): Promise<void> {
    this.cri.close();
    this.api.close();
    const code = await this.shim.stop();
    if (code !== 0) throw new Error(`the shim exited with ${code}`);
  }
}
