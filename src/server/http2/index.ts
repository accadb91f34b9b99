/** The HTTP/2 wire format: frames, header compression, settings and error codes, without connection state. */
export { ConnectionError, ErrorCode } from './errors.ts';
export { FLOOD_LIMIT, FloodMeter } from './flood-meter.ts';
export { FrameReader, HEADERS_COST, type TurnCosts } from './frame-reader.ts';
export {
  DEFAULT_MAX_FRAME_SIZE,
  DEFAULT_WINDOW,
  FRAME_HEADER_SIZE,
  Flag,
  Frame,
  FrameType,
  LARGEST_STREAM,
  LARGEST_WINDOW,
  PREFACE,
  checkFrame,
  frameHeader,
  goaway,
  headersFrames,
  headersInPlace,
  ping,
  pingAck,
  rstStream,
  settingsAck,
  settingsFrame,
  windowUpdate,
  writeFrameHeader,
} from './frame.ts';
export { HeaderAssembly } from './header-assembly.ts';
export type { HeaderBlock } from './header-assembly.ts';
export {
  DEFAULT_TABLE_SIZE,
  HeaderField,
  HpackDecoder,
  HpackEncoder,
  StaticIndex,
  staticField,
} from './hpack/index.ts';
export { ReusedMemory } from './memory.ts';
export {
  NO_TABLE_NO_PUSH,
  Setting,
  pendingSettings,
  readSettings,
  settingsForClient,
  settingsForServer,
} from './settings.ts';
export type { PendingSettings } from './settings.ts';
