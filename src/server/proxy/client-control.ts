import {
  ConnectionError,
  DEFAULT_WINDOW,
  ErrorCode,
  FLOOD_LIMIT,
  FloodMeter,
  type Frame,
  type FrameReader,
  LARGEST_WINDOW,
  type PendingSettings,
  pendingSettings,
  readSettings,
  settingsAck,
  settingsForServer,
  windowUpdate,
} from '../../http2/index.ts';
import type { BackendSide } from './backend-side.ts';
import { refuseTooMany } from './dispatch.ts';
import type { FlowControl } from './flow-control.ts';
import { backendInitial, largestInitial } from './backend-flow.ts';
import type { Lifecycle } from './lifecycle.ts';
import type { ProxyConnectionOptions } from './options.ts';
import type { PassStream, Stream } from './stream.ts';
import type { Streams } from './streams.ts';
import type { Outbox } from './outbox.ts';

/** What {@link ClientControl} uses of the connection. */
export interface ClientControlPorts {
  readonly options: ProxyConnectionOptions;
  readonly lifecycle: Lifecycle;
  readonly toClient: Outbox;
  readonly toBackend: Outbox;
  /** Towards the client. */
  readonly flowControl: FlowControl;
  readonly streams: Streams;
  readonly backend: BackendSide;
  readonly client: {
    readonly reader: FrameReader;
    /** Throws for a frame of an idle stream. */
    refuseIdle(frame: Frame): void;
    /** Resets a stream on both ends. */
    resetBoth(stream: Stream, code: ErrorCode): void;
  };
  /** The client has sent its first SETTINGS. */
  begun(): void;
}

/** Handles the client's frames that carry no part of a call: SETTINGS, PING and WINDOW_UPDATE. */
export class ClientControl {
  /** The client's SETTINGS that have not been acknowledged, oldest first. */
  readonly unacknowledged: PendingSettings[] = [];
  /** The client's SETTINGS_INITIAL_WINDOW_SIZE, as last acknowledged. */
  initialWindow = DEFAULT_WINDOW;
  /** Whether the client's first SETTINGS have come. */
  settingsReceived = false;
  /** {@link FlowControl.sentFrames} at the last PING. */
  #sentFramesAtPing = 0;
  readonly #ports: ClientControlPorts;
  readonly #pings: FloodMeter;
  readonly #settings: FloodMeter;

  constructor(ports: ClientControlPorts) {
    this.#ports = ports;
    const { now } = ports.options;
    this.#pings = new FloodMeter('PING', FLOOD_LIMIT, now);
    this.#settings = new FloodMeter('SETTINGS', FLOOD_LIMIT, now);
  }

  settings(frame: Frame): void {
    this.#settings.count();
    const ports = this.#ports;
    const settings = readSettings(frame);
    this.unacknowledged.push(pendingSettings(settings));
    refuseTooMany(this.unacknowledged, ports.options.settingsLimit);
    const first = !this.settingsReceived;
    this.settingsReceived = true;
    if (first) ports.begun();
    ports.toBackend.push(settingsForServer(settings, first, largestInitial(ports.options)));
    if (first) ports.backend.flow.readAhead(ports.options.readAhead);
    // Otherwise the backend acknowledges them.
    if (ports.backend.gone) this.acknowledge();
    // The backend's SETTINGS must reach the client first (RFC 9113 3.4); until then the rest waits.
    if (ports.lifecycle.state.kind === 'opening') ports.client.reader.stop();
  }

  /** Acknowledges the oldest of the client's SETTINGS, which takes effect with that (RFC 9113 6.5.3). */
  acknowledge(): void {
    const settings = this.unacknowledged.shift();
    if (settings === undefined) return;
    const ports = this.#ports;
    ports.toClient.push(settingsAck());
    ports.flowControl.maxFrameSize = settings.maxFrameSize ?? ports.flowControl.maxFrameSize;
    if (settings.initialWindow === undefined) return;
    const before = backendInitial(ports.options, this.initialWindow);
    const change = settings.initialWindow - this.initialWindow;
    this.initialWindow = settings.initialWindow;
    ports.streams.shiftWindows(change, backendInitial(ports.options, settings.initialWindow) - before);
    if (change > 0) ports.flowControl.pumpLater();
  }

  /** Acknowledges all pending SETTINGS: the backend, which normally does, is gone. */
  acknowledgeAll(): void {
    while (this.unacknowledged.length > 0) this.acknowledge();
  }

  ping(frame: Frame): void {
    // A Go client sends a PING for about every burst it receives, to measure bandwidth: those are not a flood.
    const { sentFrames } = this.#ports.flowControl;
    if (this.#sentFramesAtPing !== sentFrames) this.#pings.reset();
    this.#sentFramesAtPing = sentFrames;
    this.#pings.count();
    this.#ports.toClient.acknowledgePing(frame);
    this.#ports.options.observer.pingAnswered('client');
  }

  windowUpdate(frame: Frame): void {
    const ports = this.#ports;
    const increment = frame.buffer.readUInt32BE(frame.payload) & LARGEST_WINDOW;
    if (frame.streamId === 0) {
      if (increment === 0) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'WINDOW_UPDATE of 0');
      if (!ports.flowControl.grow(increment))
        throw new ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, 'window too large');
      ports.flowControl.pumpLater();
      return;
    }
    const stream = ports.streams.get(frame.streamId);
    if (stream === undefined) {
      ports.client.refuseIdle(frame);
      return;
    }
    if (increment === 0) {
      ports.client.resetBoth(stream, ErrorCode.PROTOCOL_ERROR);
      return;
    }
    if (stream.down.window + increment > LARGEST_WINDOW) {
      ports.client.resetBoth(stream, ErrorCode.FLOW_CONTROL_ERROR);
      return;
    }
    stream.down.window += increment;
    if (!stream.down.idle) ports.flowControl.drain(stream.down);
    if (stream.kind === 'pass') this.#widen(stream, increment, frame);
    else if (stream.kind !== 'handle') ports.backend.grantStream(stream);
  }

  /**
   * Forwards a stream's WINDOW_UPDATE to the backend. Read-ahead shrinks if both together exceed the largest window.
   */
  #widen(stream: PassStream, increment: number, frame: Frame): void {
    const { toBackend } = this.#ports;
    const { down } = stream;
    const excess = down.window - down.charged + stream.ahead - LARGEST_WINDOW;
    if (excess <= 0) {
      toBackend.pass(frame.buffer, frame.start, frame.end);
      return;
    }
    stream.ahead -= excess;
    if (increment > excess) toBackend.push(windowUpdate(stream.id, increment - excess));
  }
}
