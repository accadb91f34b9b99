import { ConnectionError, ErrorCode } from './errors.ts';
import type { Frame } from './frame.ts';
import {
  DEFAULT_MAX_FRAME_SIZE,
  DEFAULT_WINDOW,
  LARGEST_MAX_FRAME_SIZE,
  LARGEST_WINDOW,
  settingsFrame,
} from './frame.ts';

/** Identifiers (RFC 9113 section 6.5.2). Those that are not here pass without a look. */
export const Setting = { HEADER_TABLE_SIZE: 1, ENABLE_PUSH: 2, INITIAL_WINDOW_SIZE: 4, MAX_FRAME_SIZE: 5 } as const;

/** One SETTINGS frame: its values in order, and those that the switch acts on. */
export interface Settings {
  readonly all: readonly (readonly [id: number, value: number])[];
  readonly initialWindow: number | undefined;
  readonly maxFrameSize: number | undefined;
}

/** @throws ConnectionError for values out of range (RFC 9113 section 6.5.2) */
export function readSettings(frame: Frame): Settings {
  const all: [number, number][] = [];
  let initialWindow: number | undefined;
  let maxFrameSize: number | undefined;
  for (let at = frame.payload; at < frame.end; at += 6) {
    const id = frame.buffer.readUInt16BE(at);
    const value = frame.buffer.readUInt32BE(at + 2);
    all.push([id, value]);
    if (id === Setting.ENABLE_PUSH && value > 1)
      throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, `SETTINGS_ENABLE_PUSH ${value}`);
    if (id === Setting.INITIAL_WINDOW_SIZE) {
      if (value > LARGEST_WINDOW)
        throw new ConnectionError(ErrorCode.FLOW_CONTROL_ERROR, `SETTINGS_INITIAL_WINDOW_SIZE ${value}`);
      initialWindow = value;
    }
    if (id === Setting.MAX_FRAME_SIZE) {
      if (value < DEFAULT_MAX_FRAME_SIZE || value > LARGEST_MAX_FRAME_SIZE)
        throw new ConnectionError(ErrorCode.PROTOCOL_ERROR, `SETTINGS_MAX_FRAME_SIZE ${value}`);
      maxFrameSize = value;
    }
  }
  return { all, initialWindow, maxFrameSize };
}

/**
 * A client's SETTINGS as a server behind the switch gets them. The servers may not use a dynamic table: so each of
 * their header blocks stands for itself, and blocks of several servers can go to the client in any order. And they may
 * not push: the switch knows only streams that the client opened.
 * @param first the first frame says so, and what the client says on this later is left out
 * @param ahead bytes that the server may send on each stream beyond what the client takes
 */
export function settingsForServer(settings: Settings, first: boolean, ahead: number): Buffer {
  const own = new Set<number>([Setting.HEADER_TABLE_SIZE, Setting.ENABLE_PUSH, Setting.INITIAL_WINDOW_SIZE]);
  const passed = settings.all.filter(([id]) => !own.has(id));
  const window = settings.initialWindow ?? (first && ahead > 0 ? DEFAULT_WINDOW : undefined);
  const wider: [number, number][] =
    window === undefined ? [] : [[Setting.INITIAL_WINDOW_SIZE, Math.min(window + ahead, LARGEST_WINDOW)]];
  return settingsFrame([...(first ? NO_TABLE_NO_PUSH : []), ...wider, ...passed]);
}

/** What every server behind the switch is told. */
export const NO_TABLE_NO_PUSH: readonly (readonly [number, number])[] = [
  [Setting.HEADER_TABLE_SIZE, 0],
  [Setting.ENABLE_PUSH, 0],
];

/**
 * The backend's SETTINGS as the client gets them. The client's header blocks end at the switch's decoder, whose table has
 * the default size, whatever the backend's has.
 */
export function settingsForClient(settings: Settings): Buffer {
  return settingsFrame(settings.all.filter(([id]) => id !== Setting.HEADER_TABLE_SIZE));
}
