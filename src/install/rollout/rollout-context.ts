import type { Drift } from '../../endpoint/index.ts';
import type { PostEvent, Reason } from './events.ts';
import type { Host } from './host.ts';
import type { ClusterNode } from './node.ts';
import type { RetryOptions, TurnContext } from './turns/index.ts';

/** What the installer works with. */
export interface RolloutContext extends RetryOptions {
  readonly host: Host;
  readonly turns: TurnContext;
  /** Copies the program to the host for {@link Host.resizectl}, and removes it. */
  readonly stage: () => Promise<void>;
  readonly unstage: () => Promise<void>;
  /** Flags of `resizectl install` and `resizectl uninstall`. */
  readonly installFlags: readonly string[];
  readonly uninstallFlags: readonly string[];
  readonly readNode: (signal: AbortSignal) => Promise<ClusterNode | undefined>;
  /** Sets the label of the node that has the installed version; undefined removes it. */
  readonly labelVersion: (version: string | undefined, signal: AbortSignal) => Promise<void>;
  /** Returns a function that creates an event of this node. */
  readonly eventToPost: (reason: Reason, note: string) => PostEvent;
  /** Sets the readiness of the pod. */
  readonly markReady: (isReady: boolean) => Promise<void>;
  /** Whether the labels include that of the shim. */
  readonly hasLabel: (labels: ClusterNode['labels']) => boolean;
  /** Whether the labels are those of a canary node. */
  readonly isCanary: (labels: ClusterNode['labels']) => boolean;
  /** Returns whether kubelet's configuration has the shim. Rejects if procfs or the root of the host cannot be read. */
  readonly drift: () => Promise<Drift>;
  /** Whether to install the shim again if kubelet does not use it. */
  readonly repairsDrift: boolean;
  readonly times: Times;
}

/** Timeouts and intervals in milliseconds. */
export interface Times {
  /** The pods of all nodes start at once: each first waits for a random part of this time. */
  readonly spread: number;
  /** Maximum time for the node to become Ready after its turn. */
  readonly ready: number;
  /** Interval until a node that does not meet the requirements is checked again. */
  readonly retry: number;
  /** Interval of polls of a node that is not Ready. */
  readonly poll: number;
  /** Maximum time to read the label when the pod ends. */
  readonly answer: number;
  /** Interval of looks at kubelet's endpoint while the shim is installed. */
  readonly look: number;
  /** How long a canary node has to work before it vouches for the release. */
  readonly soak: number;
}
