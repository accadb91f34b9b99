import { CriClient } from '../cri/client.ts';
import { ShimProcess } from '../cri/shim.ts';
import { ResizeClient } from '../resize-api-client.ts';

export interface ServedOptions {
  /** Names the folder under /run for the sockets. */
  readonly name: string;
  /** Where the shim listens for CRI calls; its usual socket without. */
  readonly listen?: string;
  readonly args?: readonly string[];
}

/** A shim that serves both its interfaces, with a client of each. */
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

  /** Throws unless the shim ends by itself and without a complaint. */
  async stop(): Promise<void> {
    this.cri.close();
    this.api.close();
    const code = await this.shim.stop();
    if (code !== 0) throw new Error(`the shim ended with ${code}`);
  }
}
