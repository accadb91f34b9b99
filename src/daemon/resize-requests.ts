import {
  type Config,
  messageOf,
  type PassedSocket,
  type ReadinessCheck,
  type ReadinessReport,
  steadyNow,
  systemClock,
} from '../core/index.ts';
import type { KubernetesWatch } from '../kubernetes/annotations/annotations.ts';
import { listen, listenOnInherited, loadPeerOf, openResizeApi } from '../server/index.ts';
import { watchKubernetes } from './annotations.ts';
import type { ResizeCore } from './resize-core.ts';

/** Start and end of a bypass, in milliseconds since the epoch. */
type BypassEnd = Parameters<KubernetesWatch['bypassEnded']>[0];

/** Sources of pod resizes other than the CRI: resize API, earlier deferred requests, Kubernetes annotations. */
export class ResizeRequests {
  #api: RunningResizeApi | undefined;
  #kubernetes: KubernetesWatch | undefined;
  #restored: Promise<void> | undefined;
  #isClosed = false;
  /** A change of kubelet's endpoint that the watch in Kubernetes could not report yet. */
  #endpoint: { readonly isDrift: boolean; readonly note: string } | undefined;
  /** A bypass that has ended before the watch in Kubernetes could report it. */
  #ended: BypassEnd | undefined;

  /** @param passed the socket of the resize API, if systemd created it */
  constructor(
    private readonly config: Config,
    private readonly core: ResizeCore,
    /** The socket of the resize API, if systemd created it. */
    private readonly passed: PassedSocket | undefined,
  ) {}

  /** Readiness of any Kubernetes watch. Optional: the shim also resizes without the API server. */
  optionalChecks(): readonly ReadinessCheck[] {
    return this.#kubernetes === undefined ? [] : [{ ...this.#kubernetes.check(), isOptional: true }];
  }

  /** Serves the resize API if it is configured. Never rejects. */
  async serveApi(readiness: () => Promise<ReadinessReport>): Promise<void> {
    if (this.config.resizeListen === '' && this.passed === undefined) return;
    try {
      this.#api = await startResizeApi(this.config, this.core, readiness, this.passed);
      void this.#api.failure.then((error) => this.#apiFailed(error));
    } catch (error) {
      this.#apiFailed(error);
    }
  }

  /** Restores deferred requests and watches Kubernetes. Call it when the pods are known; repeated calls do nothing. */
  restore(): void {
    this.#restored ??= this.#restore();
  }

  /** Reports it in Kubernetes, if it is watched. */
  bypassEnded(times: BypassEnd): void {
    if (this.#kubernetes === undefined) this.#ended = times;
    else this.#kubernetes.bypassEnded(times);
  }

  /** Reports in Kubernetes, if it is watched, that kubelet no longer uses the shim, or uses it again. */
  endpointChanged(isDrift: boolean, note: string): void {
    if (this.#kubernetes === undefined) this.#endpoint = { isDrift, note };
    else this.#kubernetes.endpointChanged(isDrift, note);
  }

  /** Closes the watch in Kubernetes, also one that is about to start. */
  closeWatch(): void {
    this.#isClosed = true;
    void this.#restored?.then(() => this.#kubernetes?.close());
  }

  /** Waits for running resizes and calls of the API, at most `graceMs`. */
  async close(graceMs: number): Promise<void> {
    const deadline = steadyNow() + graceMs;
    await this.core.podResizes.close(graceMs);
    await this.#api?.close(Math.max(0, deadline - steadyNow()));
  }

  async #restore(): Promise<void> {
    const { kubeconfig } = this.config;
    if (this.#api === undefined && kubeconfig === '') return;
    await this.core.podResizes.restore();
    if (kubeconfig === '' || this.#isClosed) return;
    try {
      this.#kubernetes = await watchKubernetes(this.config, this.core);
      if (this.#ended !== undefined) this.#kubernetes.bypassEnded(this.#ended);
      if (this.#endpoint !== undefined) this.#kubernetes.endpointChanged(this.#endpoint.isDrift, this.#endpoint.note);
    } catch (error) {
      this.core.node.log.error({ error: messageOf(error) }, 'watch of pod annotations could not be started');
    }
  }

  #apiFailed(error: unknown): void {
    const listen = this.passed?.path ?? this.config.resizeListen;
    this.core.node.log.error({ listen, error: messageOf(error) }, 'resize API is not served');
  }
}

/** The running resize API. */
interface RunningResizeApi {
  /** Resolves if listening fails. */
  readonly failure: Promise<Error>;
  /** Accepts no further calls, and waits for running calls, at most `graceMs`. */
  close(graceMs: number): Promise<void>;
}

/** Serves the resize API at `--resize-listen`. Call it after the CRI socket is open: both may be in the same folder. */
async function startResizeApi(
  config: Config,
  { podResizes: { resizes, pods }, node: { log, counters } }: ResizeCore,
  readiness: () => Promise<ReadinessReport>,
  passed: PassedSocket | undefined,
): Promise<RunningResizeApi> {
  const { resizeListen: path, resizeSocketMode: mode } = config;
  return openResizeApi({
    path: passed?.path ?? path,
    listen: (onConnection) =>
      passed === undefined
        ? listen({ path, rights: { mode }, onConnection, log })
        : listenOnInherited({ ...passed, onConnection }),
    pods,
    resizes,
    peerOf: await loadPeerOf(log),
    clock: systemClock,
    readiness,
    log,
    counters,
  });
}
