import {
  DEFAULT_WINDOW,
  NO_TABLE_NO_PUSH,
  PREFACE,
  Setting,
  settingsFrame,
  windowUpdate,
} from '../../server/http2/index.ts';
import { HEADER_LIST_LIMIT } from './response/index.ts';
import { STREAM_WINDOW } from './stream.ts';

/** Bytes that the server may send on all streams ahead of what was read. */
export const CONNECTION_WINDOW = 2 * STREAM_WINDOW;

/** What the client sends first: preface, SETTINGS, and the window of the connection, which SETTINGS cannot set. */
export const HELLO = Buffer.concat([
  PREFACE,
  settingsFrame([
    ...NO_TABLE_NO_PUSH,
    [Setting.INITIAL_WINDOW_SIZE, STREAM_WINDOW],
    [Setting.MAX_HEADER_LIST_SIZE, HEADER_LIST_LIMIT],
  ]),
  windowUpdate(0, CONNECTION_WINDOW - DEFAULT_WINDOW),
]);
