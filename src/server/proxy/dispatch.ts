import {
  ConnectionError,
  checkFrame,
  ErrorCode,
  Flag,
  type Frame,
  FrameReader,
  FrameType,
  HeaderAssembly,
  type HeaderBlock,
  type PendingSettings,
  type TurnCosts,
} from '../../http2/index.ts';

/** The handlers of one side of a proxy connection, for each kind of frame that its peer sends. */
export interface FrameHandlers {
  data(frame: Frame): void;
  /** A header block is complete. */
  headers(block: HeaderBlock): void;
  reset(frame: Frame): void;
  settings(frame: Frame): void;
  settingsAcknowledged(frame: Frame): void;
  ping(frame: Frame): void;
  pingAcknowledged(frame: Frame): void;
  goaway(frame: Frame): void;
  windowUpdate(frame: Frame): void;
}

/** The cost of the frames of one read in one turn of the event loop; see {@link FrameReader}. Takes about 1 ms. */
export const TURN_COST = 512;

/**
 * Returns a reader of a peer's frames. It checks the rules that hold for every peer, joins header blocks, and calls the
 * handler of each frame.
 * @param headerListLimit octets of an encoded header block
 * @param costs of frames, see {@link FrameReader}
 */
export function frameReader(headerListLimit: number, handlers: FrameHandlers, costs?: TurnCosts): FrameReader {
  const assembly = new HeaderAssembly(headerListLimit);
  let settingsReceived = false;
  return new FrameReader((frame) => {
    checkFrame(frame);
    if (!settingsReceived) {
      if (frame.type !== FrameType.SETTINGS || frame.has(Flag.ACK))
        throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, 'the first frame is not SETTINGS');
      settingsReceived = true;
    }
    const block = assembly.take(frame);
    if (block === undefined) dispatch(frame, handlers);
    else handlers.headers(block);
  }, costs);
}

/**
 * Checks the number of SETTINGS that a side has sent and the other has not acknowledged.
 * @throws ConnectionError ENHANCE_YOUR_CALM
 */
export function refuseTooMany(unacknowledged: readonly PendingSettings[], limit: number): void {
  if (unacknowledged.length > limit)
    throw new ConnectionError(ErrorCode.ENHANCE_YOUR_CALM, 'too many SETTINGS that are not acknowledged');
}

/** Calls the handler of a frame that is not part of a header block. */
function dispatch(frame: Frame, handlers: FrameHandlers): void {
  switch (frame.type) {
    case FrameType.DATA:
      handlers.data(frame);
      return;
    case FrameType.RST_STREAM:
      handlers.reset(frame);
      return;
    case FrameType.SETTINGS:
      if (frame.has(Flag.ACK)) handlers.settingsAcknowledged(frame);
      else handlers.settings(frame);
      return;
    case FrameType.PING:
      if (frame.has(Flag.ACK)) handlers.pingAcknowledged(frame);
      else handlers.ping(frame);
      return;
    case FrameType.GOAWAY:
      handlers.goaway(frame);
      return;
    case FrameType.WINDOW_UPDATE:
      handlers.windowUpdate(frame);
      return;
    default:
      // An incomplete header block waits in its assembly. RFC 9113 5.3.2 deprecates PRIORITY, and RFC 9113 4.1 requires
      // that unknown frames are ignored.
      return;
  }
}
