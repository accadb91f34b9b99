/** The wire of HTTP/2 alone: frames, HPACK, settings, error codes. No connection state. */
export { ConnectionError, ErrorCode } from './errors.ts';
export { FLOOD_LIMIT, FloodMeter } from './flood-meter.ts';
export {
  checkFrame,
  DEFAULT_MAX_FRAME_SIZE,
  DEFAULT_WINDOW,
  Flag,
  FRAME_HEADER_SIZE,
  Frame,
  FrameType,
  frameHeader,
  goaway,
  headersFrames,
  headersInPlace,
  LARGEST_STREAM,
  LARGEST_WINDOW,
  PREFACE,
  ping,
  pingAck,
  rstStream,
  settingsAck,
  settingsFrame,
  windowUpdate,
  writeFrameHeader,
} from './frame.ts';
export {
  FrameReader,
  HEADERS_COST,
  HeaderAssembly,
  type HeaderBlock,
  ReusedMemory,
  type TurnCosts,
} from './frame-reader.ts';
export { DEFAULT_TABLE_SIZE, HpackDecoder, HpackEncoder } from './hpack/codec.ts';
export { HeaderField } from './hpack/field.ts';
export { StaticIndex, staticField } from './hpack/static-table.ts';
export {
  NO_TABLE_NO_PUSH,
  type PendingSettings,
  pendingSettings,
  readSettings,
  Setting,
  settingsForClient,
  settingsForServer,
} from './settings.ts';
