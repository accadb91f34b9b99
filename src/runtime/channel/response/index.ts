/** The response to a unary call: header blocks, the message, and how it ends the call. */
export { HEADER_LIST_LIMIT, HeaderBlocks } from './header-blocks.ts';
export { metadataOf } from './metadata-of.ts';
export { MessageReader, ResponseMemory } from './message-reader.ts';
export {
  LOST,
  type Outcome,
  REFUSED,
  httpOutcome,
  malformed,
  resetOutcome,
  trailersOutcome,
  valueOf,
} from './outcome.ts';
