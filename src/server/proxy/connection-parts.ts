import type { ErrorCode, Frame, FrameReader } from '../../http2/index.ts';
import type { BackendFlow } from './backend-flow.ts';
import type { FlowControl } from './flow-control.ts';
import type { Side } from './interception.ts';
import type { Lane } from './lane.ts';
import type { Lifecycle } from './lifecycle.ts';
import type { ProxyConnectionOptions } from './options.ts';
import type { Outbox } from './outbox.ts';
import type { Results } from './results.ts';
import type { HeldBytes } from './shared-budget.ts';
import type { AmendStream, LocalPeer, LocalStream, MessageAmendStream, Stream } from './stream.ts';

/** The parts of one connection, as far as they use each other. */
export interface ConnectionParts {
  readonly options: ProxyConnectionOptions;
  readonly lifecycle: Lifecycle;
  readonly toClient: Outbox;
  readonly toBackend: Outbox;
  /** Towards the client. */
  readonly flowControl: FlowControl;
  /** The requests and responses that are held for amendments, of all streams. */
  readonly held: HeldBytes;
  readonly results: Results;
  readonly streams: StreamsPart;
  readonly client: ClientPart;
  readonly backend: BackendPart;
  readonly control: {
    /** The client's initial window for its streams, in bytes. */
    readonly initialWindow: number;
    settings(frame: Frame): void;
    ping(frame: Frame): void;
    windowUpdate(frame: Frame): void;
    /** Acknowledges the oldest of the client's SETTINGS. */
    acknowledge(): void;
    /** Acknowledges all pending SETTINGS of the client. */
    acknowledgeAll(): void;
  };
  readonly amender: {
    request(stream: AmendStream, part: Buffer): void;
    head(stream: AmendStream, frames: Buffer): boolean;
    /** Returns false if the frame is to be forwarded unchanged. */
    response(stream: AmendStream, frame: Frame): boolean;
    responseEnds(stream: AmendStream): void;
    /** Frees what is held for a stream. Returns whether that includes any of the response. */
    finish(stream: AmendStream): boolean;
  };
  readonly messageAmender: {
    response(stream: MessageAmendStream, frame: Frame): void;
    /** The response ends: what follows goes to the client after what is held. */
    responseEnds(stream: MessageAmendStream): void;
    /** Frees what is held for a stream. */
    finish(stream: MessageAmendStream): void;
  };
  readonly delayer: {
    /** Takes DATA of a request. Returns false if it is to be forwarded. */
    request(stream: Stream, frame: Frame): boolean;
    release(stream: Stream): void;
    /** Ends the delay of a stream that ends. */
    finish(stream: Stream): void;
  };
  /** Serves handled streams, or hands them over to the local server. */
  readonly handling: LocalPeer;
  readonly locals: {
    /**
     * Returns the connection to the local server that takes this stream; undefined if it has opened a later stream.
     */
    open(streamId: number): LocalPeer | undefined;
  };
  readonly gracefulShutdown: {
    /** Continues a shutdown that waits for the client's acknowledgement. */
    proceed(): void;
    pingAcknowledged(data: Buffer): void;
  };
  /** Handles an event of a side, then writes what has gathered. */
  run(side: Side, action: () => void): void;
  /** Runs an action during work for another side. An error in it ends the client's connection. */
  asClient(action: () => void): void;
  /** Handles a chunk. Returns whether its memory can be reused. */
  receive(name: Side, side: ReadingSide, chunk: Buffer): boolean;
  balance(): void;
  /** The client has sent its first SETTINGS. */
  begun(): void;
  /** The backend's SETTINGS have come. */
  opened(): void;
  /** Sends GOAWAY with the last stream that is served. */
  goAway(message: string): void;
  /** Sends GOAWAY and closes: to be called while no call runs. */
  end(message: string): void;
  /** Ends the connection to the backend. */
  endBackend(): void;
  /** Sends what is left and closes, without waiting for streams. */
  close(): void;
}

/** The reader of the chunks of a side. */
export interface ReadingSide {
  readonly reader: Pick<FrameReader, 'recycle'>;
  /** @throws ConnectionError */
  push(chunk: Buffer): void;
}

/** The side of the client, as the others use it. */
interface ClientPart {
  readonly reader: FrameReader;
  /** The highest stream id that the client has opened. */
  readonly lastStreamId: number;
  /** The client gets a larger connection window. */
  windowGranted(bytes: number): void;
  /** DATA of the client has left the proxy: its connection window goes back to the client. */
  windowReleased(bytes: number): void;
  /** Returns connection window to the client, for DATA that the backend never gets. */
  refund(size: number): void;
  /** Throws for a frame of an idle stream. */
  refuseIdle(frame: Frame): void;
  /** Resets a stream on both ends. */
  resetBoth(stream: Stream, code: ErrorCode): void;
}

/** The side of the backend, as the others use it. */
interface BackendPart {
  readonly flow: BackendFlow;
  readonly initialWindow: number;
  readonly maxFrameSize: number;
  /** Whether the client has acknowledged the backend's first SETTINGS. */
  readonly settingsAcknowledged: boolean;
  /** The connection to the backend is closed. */
  gone: boolean;
  /** Whether the backend serves a stream with this id. */
  accepts(streamId: number): boolean;
  /** Forwards the client's acknowledgement of the backend's SETTINGS. */
  acknowledged(frame: Frame): void;
  /** Widens the backend's window of the stream to what the client's allows. */
  grantStream(stream: AmendStream | MessageAmendStream): void;
}

/** The streams, as the others use them. */
interface StreamsPart {
  /** The number of open streams. */
  readonly count: number;
  get(id: number): Stream | undefined;
  open(id: number, path: string, compressed: boolean, timeout: string): Stream;
  delivered(lane: Lane): void;
  closeIfOver(stream: Stream): void;
  close(stream: Stream): void;
  resetByServer(stream: Stream, frame: Frame): void;
  refuse(stream: Stream, code: ErrorCode): void;
  refuseCall(stream: LocalStream, message: string): void;
  resetBoth(stream: Stream, code: ErrorCode): void;
  backendLost(message: string): void;
  localLost(peer: LocalPeer, message: string): void;
  backendStopsAfter(lastStreamId: number): number;
  shiftWindows(change: number, granted: number): void;
  restoreLocalWindows(bytes: number): void;
}
