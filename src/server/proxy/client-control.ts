import {
  ConnectionError,
  DEFAULT_WINDOW,
  ErrorCode,
  FLOOD_LIMIT,
  FloodMeter,
  type Frame,
  LARGEST_WINDOW,
  type PendingSettings,
  pendingSettings,
  readSettings,
  settingsAck,
  settingsForServer,
  windowUpdate,
} from '../../http2/index.ts';
import { backendInitial, largestInitial } from './backend-flow.ts';
import type { ConnectionParts } from './connection-parts.ts';
import { refuseTooMany } from './dispatch.ts';
import type { PassStream } from './stream.ts';

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
  readonly #pings: FloodMeter;
  readonly #settings: FloodMeter;

  constructor(private readonly parts: ConnectionParts) {
    const { now } = parts.options;
    this.#pings = new FloodMeter('PING', FLOOD_LIMIT, now);
    this.#settings = new FloodMeter('SETTINGS', FLOOD_LIMIT, now);
  }

  settings(frame: Frame): void {
    this.#settings.count();
    const parts = this.parts;
    const settings = readSettings(frame);
    this.unacknowledged.push(pendingSettings(settings));
    refuseTooMany(this.unacknowledged, parts.options.settingsLimit);
    const first = !this.settingsReceived;
    this.settingsReceived = true;
    if (first) parts.begun();
    parts.toBackend.push(settingsForServer(settings, first, largestInitial(parts.options)));
    if (first) parts.backend.flow.readAhead(parts.options.readAhead);
    // Otherwise the backend acknowledges them.
    if (parts.backend.gone) this.acknowledge();
    // The backend's SETTINGS must reach the client first (RFC 9113 3.4); until then the rest waits.
    if (parts.lifecycle.state.kind === 'opening') parts.client.reader.stop();
  }

  /** Acknowledges the oldest of the client's SETTINGS, which takes effect with that (RFC 9113 6.5.3). */
  acknowledge(): void {
    const settings = this.unacknowledged.shift();
    if (settings === undefined) return;
    const parts = this.parts;
    parts.toClient.push(settingsAck());
    parts.flowControl.maxFrameSize = settings.maxFrameSize ?? parts.flowControl.maxFrameSize;
    if (settings.initialWindow === undefined) return;
    const before = backendInitial(parts.options, this.initialWindow);
    const change = settings.initialWindow - this.initialWindow;
    this.initialWindow = settings.initialWindow;
    parts.streams.shiftWindows(change, backendInitial(parts.options, settings.initialWindow) - before);
    if (change > 0) parts.flowControl.pumpLater();
  }

  /** Acknowledges all pending SETTINGS: the backend, which normally does, is gone. */
  acknowledgeAll(): void {
    while (this.unacknowledged.length > 0) this.acknowledge();
  }

  ping(frame: Frame): void {
    // A Go client sends a PING for about every burst it receives, to measure bandwidth: those are not a flood.
    const { sentFrames } = this.parts.flowControl;
    if (this.#sentFramesAtPing !== sentFrames) this.#pings.reset();
    this.#sentFramesAtPing = sentFrames;
    this.#pings.count();
    this.parts.toClient.acknowledgePing(frame);
    this.parts.options.observer.pingAnswered('client');
  }

  windowUpdate(frame: Frame): void {
    const parts = this.parts;
    const increment = frame.buffer.readUInt32BE(frame.payload) & LARGEST_WINDOW;
    if (frame.streamId === 0) {
      if (increment === 0) throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'WINDOW_UPDATE of 0');
      if (!parts.flowControl.grow(increment))
        throw new ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, 'window too large');
      parts.flowControl.pumpLater();
      return;
    }
    const stream = parts.streams.get(frame.streamId);
    if (stream === undefined) {
      parts.client.refuseIdle(frame);
      return;
    }
    if (increment === 0) {
      parts.client.resetBoth(stream, ErrorCode.PROTOCOL_ERROR);
      return;
    }
    if (stream.down.window + increment > LARGEST_WINDOW) {
      parts.client.resetBoth(stream, ErrorCode.FLOW_CONTROL_ERROR);
      return;
    }
    stream.down.window += increment;
    if (!stream.down.idle) parts.flowControl.drain(stream.down);
    if (stream.kind === 'pass') this.#widen(stream, increment, frame);
    else if (stream.kind !== 'handle') parts.backend.grantStream(stream);
  }

  /**
   * Forwards a stream's WINDOW_UPDATE to the backend. Read-ahead shrinks if both together exceed the largest window.
   */
  #widen(stream: PassStream, increment: number, frame: Frame): void {
    const { toBackend } = this.parts;
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
