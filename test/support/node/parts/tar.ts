/** One entry of an archive. `path` is relative, without a leading slash. */
export type TarEntry =
  | { readonly kind: 'file'; readonly path: string; readonly mode: number; readonly content: Uint8Array }
  | {
      readonly kind: 'folder';
      readonly path: string;
      readonly mode: number;
      /** The number of its user and group. Default: root. */
      readonly owner?: number;
    }
  | { readonly kind: 'link'; readonly path: string; readonly target: string };

const block = 512;

/**
 * A POSIX ustar archive. All times are zero and owners are root by default, so that equal entries result in equal
 * bytes.
 * @throws RangeError if a path has more than 100 bytes, because images of tests need no longer ones
 */
export function tar(entries: readonly TarEntry[]): Buffer {
  const pieces: Uint8Array[] = [];
  for (const entry of entries) {
    pieces.push(header(entry));
    if (entry.kind === 'file') pieces.push(entry.content, padding(entry.content.length));
  }
  // The archive ends with two empty blocks.
  pieces.push(Buffer.alloc(2 * block));
  return Buffer.concat(pieces);
}

function padding(length: number): Buffer {
  return Buffer.alloc((block - (length % block)) % block);
}

function header(entry: TarEntry): Buffer {
  const { path, mode, size, type, target, owner } = fields(entry);
  const buffer = Buffer.alloc(block);
  text(buffer, 0, 100, path);
  octal(buffer, 100, 8, mode);
  octal(buffer, 108, 8, owner);
  octal(buffer, 116, 8, owner);
  octal(buffer, 124, 12, size);
  octal(buffer, 136, 12, 0);
  buffer.write(type, 156);
  text(buffer, 157, 100, target);
  buffer.write('ustar\u000000', 257, 'latin1');
  if (owner === 0) {
    buffer.write('root', 265);
    buffer.write('root', 297);
  }
  // The checksum is computed with a blank checksum field.
  buffer.fill(' ', 148, 156);
  const sum = buffer.reduce((total, byte) => total + byte, 0);
  buffer.write(`${sum.toString(8).padStart(6, '0')}\u0000 `, 148, 'latin1');
  return buffer;
}

interface Fields {
  readonly path: string;
  readonly mode: number;
  readonly size: number;
  readonly type: string;
  readonly target: string;
  readonly owner: number;
}

function fields(entry: TarEntry): Fields {
  const { path } = entry;
  switch (entry.kind) {
    case 'file':
      return { path, mode: entry.mode, size: entry.content.length, type: '0', target: '', owner: 0 };
    case 'folder':
      return { path: `${path}/`, mode: entry.mode, size: 0, type: '5', target: '', owner: entry.owner ?? 0 };
    case 'link':
      return { path, mode: 0o777, size: 0, type: '2', target: entry.target, owner: 0 };
  }
}

function text(buffer: Buffer, offset: number, room: number, value: string): void {
  if (Buffer.byteLength(value) > room) throw new RangeError(`tar entry "${value}" is longer than ${room} bytes`);
  buffer.write(value, offset, room, 'utf8');
}

function octal(buffer: Buffer, offset: number, room: number, value: number): void {
  buffer.write(value.toString(8).padStart(room - 1, '0'), offset, 'latin1');
}
