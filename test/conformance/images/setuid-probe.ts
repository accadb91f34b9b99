/**
 * An x86-64 ELF program of a few hundred bytes that prints "Effective uid: 0", or "Effective uid: 1000" for any user
 * except root (the one other user that critest runs it as). A shell cannot do this, because shells and busybox drop the
 * setuid privilege.
 */
export function setuidProbe(): Buffer {
  const headers = 64 + 56;
  const root = Buffer.from('Effective uid: 0\n');
  const other = Buffer.from('Effective uid: 1000\n');
  const code = program(root.length, other.length);
  const size = headers + code.length + root.length + other.length;
  return Buffer.concat([elfHeader(), programHeader(size), code, root, other]);
}

/** The address at which the file is mapped, and at which its code starts. */
const base = 0x400000;
const entry = base + 64 + 56;

function program(rootLength: number, otherLength: number): Buffer {
  const leaRsi = [0x48, 0x8d, 0x35];
  const movEdx = 0xba;
  const codeLength = 54;
  const rootText = codeLength;
  const otherText = codeLength + rootLength;
  const bytes = [
    ...[0xb8, ...u32(107)], // mov eax, geteuid
    ...[0x0f, 0x05], // syscall
    ...[0x85, 0xc0], // test eax, eax
    ...[...leaRsi, ...u32(rootText - 16)], // lea rsi, [root's text]: relative to the next instruction, at 16
    ...[movEdx, ...u32(rootLength)], // mov edx, its length
    ...[0x74, 0x0c], // je over the next two
    ...[...leaRsi, ...u32(otherText - 30)], // lea rsi, [the other text]: the next instruction is at 30
    ...[movEdx, ...u32(otherLength)], // mov edx, its length
    ...[0xb8, ...u32(1)], // mov eax, write
    ...[0x89, 0xc7], // mov edi, eax: standard output has the same number
    ...[0x0f, 0x05], // syscall
    ...[0xb8, ...u32(60)], // mov eax, exit
    ...[0x31, 0xff], // xor edi, edi
    ...[0x0f, 0x05], // syscall
  ];
  if (bytes.length > codeLength)
    throw new RangeError(`the code has ${bytes.length} bytes, available are ${codeLength}`);
  return Buffer.concat([Buffer.from(bytes), Buffer.alloc(codeLength - bytes.length)]);
}

function u32(value: number): number[] {
  return [value & 0xff, (value >> 8) & 0xff, (value >> 16) & 0xff, (value >>> 24) & 0xff];
}

/** ELF64, little endian, executable, x86-64, followed by one program header. */
function elfHeader(): Buffer {
  const header = Buffer.alloc(64);
  Buffer.from([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1]).copy(header);
  header.writeUInt16LE(2, 16);
  header.writeUInt16LE(62, 18);
  header.writeUInt32LE(1, 20);
  header.writeBigUInt64LE(BigInt(entry), 24);
  header.writeBigUInt64LE(64n, 32);
  header.writeUInt16LE(64, 52);
  header.writeUInt16LE(56, 54);
  header.writeUInt16LE(1, 56);
  return header;
}

/** Maps the whole file, readable and executable. */
function programHeader(size: number): Buffer {
  const header = Buffer.alloc(56);
  header.writeUInt32LE(1, 0);
  header.writeUInt32LE(5, 4);
  header.writeBigUInt64LE(BigInt(base), 16);
  header.writeBigUInt64LE(BigInt(base), 24);
  header.writeBigUInt64LE(BigInt(size), 32);
  header.writeBigUInt64LE(BigInt(size), 40);
  header.writeBigUInt64LE(0x1000n, 48);
  return header;
}
