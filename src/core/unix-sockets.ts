/** A line of /proc/net/unix. The numbers are those of linux/net.h. */
interface UnixSocket {
  readonly flags: number;
  readonly type: number;
  readonly state: number;
  /** The inode; 0 for a connection that waits to be accepted. */
  readonly inode: string;
  /** Empty for an unnamed socket, such as a client's. An accepted socket has the path of the listening one. */
  readonly path: string;
}

export const SOCK_STREAM = 1;
export const SS_CONNECTING = 2;
export const SS_CONNECTED = 3;
/** The flag of a socket that listens. */
export const SO_ACCEPTCON = 1 << 16;

/** Matches the fields of a line: address, references, protocol, flags, type, state, inode, path. */
const LINE = /^\S+ [\da-f]+ [\da-f]+ ([\da-f]+) ([\da-f]+) ([\da-f]+) +(\d+)(?: (.*))?$/i;

/** Parses /proc/net/unix. Skips lines in another format, such as the heading. */
export function unixSockets(table: string): readonly UnixSocket[] {
  return table.split('\n').flatMap((line): UnixSocket[] => {
    const [, flags = '', type = '', state = '', inode, path = ''] = LINE.exec(line) ?? [];
    if (inode === undefined) return [];
    return [{ flags: hex(flags), type: hex(type), state: hex(state), inode, path }];
  });
}

const hex = (text: string): number => Number.parseInt(text, 16);
