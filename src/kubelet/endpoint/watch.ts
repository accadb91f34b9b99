import { access, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Clock, type EndpointState, errnoOf, type Log, messageOf, type ReadinessCheck } from '../../core/index.ts';
import { type EndpointChain, layerName, readEndpointChain } from './chain.ts';
import { isSameSocket, USED_FILE } from './paths.ts';
import { findKubeletProcess, type KubeletProcess, stillRuns } from './process.ts';

export interface EndpointWatchOptions {
  /** Mount point of procfs. */
  readonly procRoot: string;
  /** The CRI socket of the shim. */
  readonly listen: string;
  /** Contains the file {@link USED_FILE} while kubelet is expected to use the shim. */
  readonly stateFolder: string;
  /** The processes that have a connection to the CRI socket; undefined if the shim cannot see them. */
  readonly peers: () => ReadonlySet<number> | undefined;
  /** Whether clients use the bypass. kubelet then has no connection to the shim. */
  readonly isBypassed: () => boolean;
  /** Called once when a drift begins, and once when it ends. `note`: kubelet's endpoint and its source. */
  readonly onDrift: (isDrift: boolean, note: string) => void;
  readonly clock: Clock;
  readonly log: Log;
}

/** The result of one look at kubelet. */
interface Look {
  readonly state: EndpointState;
  readonly process: KubeletProcess | undefined;
  readonly says: string;
}

const INTERVAL_MS = 15_000;
const nothing: Look = { state: 'unknown', process: undefined, says: 'no kubelet is visible' };

/**
 * Compares the endpoint that kubelet uses with the shim's own socket, every 15 s. An upgrade of a node may rewrite
 * kubelet's configuration, and nothing reports that to the shim. A drift is reported after two checks in a row have
 * found it for the same process. So a starting kubelet is not a drift, and a drift is reported within 45 s.
 */
export class EndpointWatch {
  #look = nothing;
  /** The last reported result. */
  #known = nothing;
  #isUsed = false;
  #isDrift = false;
  #failure = '';
  #stop: () => void = () => undefined;
  #isClosed = false;

  constructor(private readonly options: EndpointWatchOptions) {}

  get state(): EndpointState {
    return this.#known.state;
  }

  /** Returns an optional check: other clients work without kubelet. Undefined while kubelet's state is unknown. */
  check(): ReadinessCheck | undefined {
    const { state, says } = this.#known;
    if (state === 'unknown' || state === 'unused') return undefined;
    return { name: 'kubelet', ready: state === 'shim', says, isOptional: true };
  }

  /** Checks now, and then every 15 s until closed. Never rejects. */
  async run(): Promise<void> {
    await this.look();
    if (!this.#isClosed) this.#stop = this.options.clock.after(INTERVAL_MS, () => void this.run());
  }

  close(): void {
    this.#isClosed = true;
    this.#stop();
  }

  /** Checks once. Never rejects. */
  async look(): Promise<void> {
    const { log } = this.options;
    let look = nothing;
    try {
      look = await this.#found();
      this.#failure = '';
    } catch (error) {
      const failure = messageOf(error);
      if (failure !== this.#failure) log.warn({ error: failure }, 'runtime endpoint of kubelet unknown');
      this.#failure = failure;
    }
    const isSame = look.state === this.#look.state && isSameProcess(look.process, this.#look.process);
    this.#look = look;
    if (look.state === 'shim' || isSame) this.#enter(look);
  }

  async #found(): Promise<Look> {
    const { procRoot, isBypassed, peers } = this.options;
    if (isBypassed()) return { ...nothing, says: 'the bypass serves kubelet' };
    const earlier = this.#look.process;
    // Flags in a file may have changed.
    const isKnown = earlier?.flags.argsFile === undefined;
    const process =
      earlier !== undefined && isKnown && (await stillRuns(procRoot, earlier))
        ? earlier
        : await findKubeletProcess(procRoot);
    if (process === undefined) return nothing;
    const chain = await readEndpointChain(process.flags, process.view);
    const isConnected = peers()?.has(process.pid);
    const isOurs = chain.endpoint !== undefined && (await isSameSocket(chain.endpoint, this.options.listen));
    const state = await this.#stateOf(isConnected, isOurs, chain);
    return { state, process, says: saysOf(state, chain) };
  }

  async #stateOf(isConnected: boolean | undefined, isOurs: boolean, chain: EndpointChain): Promise<EndpointState> {
    if (isConnected === true || (isConnected === undefined && isOurs)) {
      await this.#markUsed();
      // An unreadable file may be hidden from the shim's unit, and kubelet does not start with it. It is not a drift.
      return isOurs || chain.endpoint === undefined ? 'shim' : 'next_start';
    }
    // A kubelet that waits for its certificate is not connected yet. If the peers are not visible either, an unreadable
    // configuration leaves the state unknown.
    if (isOurs || (isConnected === undefined && chain.endpoint === undefined)) return 'unknown';
    return (await this.#wasUsed()) ? 'past' : 'unused';
  }

  #enter(look: Look): void {
    const { log, onDrift } = this.options;
    const { state, says } = look;
    this.#known = look;
    if (isDriftState(state) && !this.#isDrift) {
      this.#isDrift = true;
      log.warn({ state, says }, 'kubelet does not use the shim');
      onDrift(true, says);
    } else if (state === 'shim' && this.#isDrift) {
      this.#isDrift = false;
      log.info({ says }, 'kubelet uses the shim again');
      onDrift(false, says);
    }
  }

  async #markUsed(): Promise<void> {
    if (await this.#wasUsed()) return;
    await mkdir(this.options.stateFolder, { recursive: true, mode: 0o700 });
    await writeFile(this.#marker, '', { mode: 0o600 });
    this.#isUsed = true;
  }

  async #wasUsed(): Promise<boolean> {
    if (this.#isUsed) return true;
    try {
      await access(this.#marker);
      this.#isUsed = true;
    } catch (error) {
      if (errnoOf(error) !== 'ENOENT') throw error;
    }
    return this.#isUsed;
  }

  get #marker(): string {
    return join(this.options.stateFolder, USED_FILE);
  }
}

const isDriftState = (state: EndpointState): boolean => state === 'past' || state === 'next_start';

const isSameProcess = (one: KubeletProcess | undefined, other: KubeletProcess | undefined): boolean =>
  one?.pid === other?.pid && one?.startTime === other?.startTime;

function saysOf(state: EndpointState, { endpoint, winner, layers }: EndpointChain): string {
  const problem = layers.find(({ problem: why }) => why !== undefined)?.problem;
  const written =
    endpoint === undefined
      ? `its configuration cannot be read: ${problem ?? ''}`
      : `${endpoint}, set by ${layerName(winner)}`;
  switch (state) {
    case 'shim':
      return endpoint === undefined ? `uses the shim; ${written}` : `uses the shim, set by ${layerName(winner)}`;
    case 'next_start':
      return `uses the shim until its next start: then ${written}; run resizectl install`;
    case 'past':
    case 'unused':
      return `does not use the shim: ${written}; run resizectl install`;
    case 'unknown':
      return 'unknown';
  }
}
