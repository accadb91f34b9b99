import { ConnectionError, ErrorCode } from './errors.ts';
import { DEFAULT_MAX_FRAME_SIZE, type Frame, LARGEST_MAX_FRAME_SIZE, LARGEST_WINDOW, settingsFrame } from './frame.ts';

/** Identifiers of settings (RFC 9113 6.5.2). Others are forwarded unread. */
export const Setting = {
  HEADER_TABLE_SIZE: 1,
  ENABLE_PUSH: 2,
  MAX_CONCURRENT_STREAMS: 3,
  INITIAL_WINDOW_SIZE: 4,
  MAX_FRAME_SIZE: 5,
  MAX_HEADER_LIST_SIZE: 6,
} as const;

/** One SETTINGS frame: its values in order, and the values that the proxy uses. */
export interface Settings extends PendingSettings {
  readonly all: readonly (readonly [id: number, value: number])[];
}

/** The part of SETTINGS that is stored until they are acknowledged: a frame may have thousands of values. */
export interface PendingSettings {
  readonly initialWindow: number | undefined;
  readonly maxFrameSize: number | undefined;
}

/** Returns the part of SETTINGS that is stored until they are acknowledged. */
export const pendingSettings = ({ initialWindow, maxFrameSize }: Settings): PendingSettings => ({
  initialWindow,
  maxFrameSize,
});

/** @throws ConnectionError for values out of range (RFC 9113 6.5.2) */
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
 * Returns a client's SETTINGS as the backend gets them. Servers may not use a dynamic table (RFC 7541 4.2): each of
 * their header blocks is then self-contained, and blocks of several servers can reach the client in any order. They may
 * not push either (RFC 9113 8.4): the proxy knows only streams that the client opened. The client's own values of these
 * settings are left out. So is SETTINGS_MAX_FRAME_SIZE: the proxy reads frames of the default size, which bounds its
 * memory.
 * @param first whether this is the client's first SETTINGS frame, to which these restrictions are added
 * @param largest the largest initial window that the server gets
 */
export function settingsForServer(settings: Settings, first: boolean, largest: number): Buffer {
  const passed = settings.all.filter(([id]) => !NOT_FOR_SERVERS.has(id));
  const { initialWindow } = settings;
  const window: [number, number][] =
    initialWindow === undefined ? [] : [[Setting.INITIAL_WINDOW_SIZE, Math.min(initialWindow, largest)]];
  return settingsFrame([...(first ? NO_TABLE_NO_PUSH : []), ...window, ...passed]);
}

const NOT_FOR_SERVERS: ReadonlySet<number> = new Set([
  Setting.HEADER_TABLE_SIZE,
  Setting.ENABLE_PUSH,
  Setting.INITIAL_WINDOW_SIZE,
  Setting.MAX_FRAME_SIZE,
]);

/** The settings that every server behind the proxy gets; see {@link settingsForServer}. */
export const NO_TABLE_NO_PUSH: readonly (readonly [number, number])[] = [
  [Setting.HEADER_TABLE_SIZE, 0],
  [Setting.ENABLE_PUSH, 0],
];

/**
 * Returns the backend's SETTINGS for the client. The proxy decodes the client's header blocks, so the default size of
 * the proxy's own table applies instead of the backend's. Limits the number of streams to the proxy's limit.
 * @param first whether this is the backend's first SETTINGS frame, which always gets the number of streams
 */
export function settingsForClient(settings: Settings, streamLimit: number, first: boolean): Buffer {
  const passed = settings.all
    .filter(([id]) => id !== Setting.HEADER_TABLE_SIZE)
    .map(([id, value]) => [id, id === Setting.MAX_CONCURRENT_STREAMS ? Math.min(value, streamLimit) : value] as const);
  const isLimited = !first || passed.some(([id]) => id === Setting.MAX_CONCURRENT_STREAMS);
  return settingsFrame(isLimited ? passed : [...passed, [Setting.MAX_CONCURRENT_STREAMS, streamLimit]]);
}
