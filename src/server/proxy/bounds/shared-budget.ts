import { CallStarts } from './call-starts.ts';
import { CollectedRequests } from './collected-requests.ts';
import { AllHeldBytes, type HeldLimits } from './held-bytes.ts';
import { OpenStreams, type StreamLimits } from './open-streams.ts';
import { QueuedBytes } from './queued-bytes.ts';
import { Lingering } from './lingering.ts';
import { type CallLimits, RunningCalls } from './running-calls.ts';
import { Turns } from './turns.ts';

/** Limits of what all connections use together. Sizes in bytes. */
export interface SharedLimits {
  /** Copied requests and held responses. */
  readonly held: HeldLimits;
  /** Data that waits for clients. Beyond it, no connection reads ahead. */
  readonly queued: number;
  /** Connections that are closed and whose peers are not. */
  readonly lingering: number;
  readonly streams: StreamLimits;
  /** Calls that the local server handles. */
  readonly calls: CallLimits;
  /** Requests for the local server that wait for their last frame. */
  readonly requests: number;
}

/** What all connections of the proxy use together. */
export class SharedBudget {
  readonly held: AllHeldBytes;
  readonly queued: QueuedBytes;
  readonly lingering: Lingering;
  readonly streams: OpenStreams;
  readonly calls: RunningCalls;
  readonly requests: CollectedRequests;
  readonly turns = new Turns();
  readonly starts = new CallStarts();

  constructor(limits: SharedLimits) {
    this.held = new AllHeldBytes(limits.held);
    this.queued = new QueuedBytes(limits.queued);
    this.lingering = new Lingering(limits.lingering);
    this.streams = new OpenStreams(limits.streams);
    this.calls = new RunningCalls(limits.calls);
    this.requests = new CollectedRequests(limits.requests);
  }
}
