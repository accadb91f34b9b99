import {
  type BypassWatch,
  type Clock,
  type Config,
  type EndpointState,
  type Log,
  messageOf,
  type ReadinessCheck,
  systemClock,
} from '../core/index.ts';
import type { EndpointWatch } from '../kubelet/endpoint/watch.ts';
import type { CriSocket } from './cri-socket.ts';
import type { Resizing } from './resizing.ts';

export interface EndpointDriftOptions {
  readonly cri: Pick<CriSocket, 'path' | 'peers'>;
  readonly bypass: Pick<BypassWatch, 'times'>;
  readonly resizing: Pick<Resizing, 'endpointChanged'>;
  readonly log: Log;
}

/** Delay of the first check, in ms: kubelet and other clients connect as soon as the socket exists. */
const FIRST_LOOK_MS = 500;

/**
 * Watches whether kubelet uses the shim. Loads src/kubelet/endpoint and its YAML library after the start, because
 * kubelet waits for our first response.
 */
export class EndpointDrift {
  #watch: EndpointWatch | undefined;
  #stopTimer: (() => void) | undefined;
  #isClosed = false;

  constructor(
    private readonly config: Pick<Config, 'stateFolder'>,
    private readonly options: EndpointDriftOptions,
    private readonly clock: Clock = systemClock,
  ) {}

  get state(): EndpointState {
    return this.#watch?.state ?? 'unknown';
  }

  check(): ReadinessCheck | undefined {
    return this.#watch?.check();
  }

  /** Looks after {@link FIRST_LOOK_MS}, and then regularly until closed. */
  begin(): void {
    this.#stopTimer = this.clock.after(FIRST_LOOK_MS, () => void this.#run());
  }

  /** Never rejects. */
  async #run(): Promise<void> {
    const { cri, bypass, resizing, log } = this.options;
    try {
      const { EndpointWatch: Watch } = await import('../kubelet/endpoint/watch.ts');
      if (this.#isClosed) return;
      this.#watch = new Watch({
        procRoot: '/proc',
        listen: cri.path,
        stateFolder: this.config.stateFolder,
        peers: () => cri.peers(),
        isBypassed: () => bypass.times.start !== undefined && bypass.times.end === undefined,
        onDrift: (isDrift, note) => resizing.endpointChanged(isDrift, note),
        clock: this.clock,
        log,
      });
      await this.#watch.run();
    } catch (error) {
      log.error({ error: messageOf(error) }, 'runtime endpoint of kubelet is not watched');
    }
  }

  close(): void {
    this.#isClosed = true;
    this.#stopTimer?.();
    this.#watch?.close();
  }
}
