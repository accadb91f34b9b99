/**
 * Decodes a `grpc-message` (PROTOCOL-HTTP2.md of grpc): `%XX` is one octet of UTF-8. Everything that is no such escape stays as it is,
 * because a message that cannot be decoded is better than none.
 * @param text one character for each octet
 */
export function percentDecoded(text: string): string {
  if (!text.includes('%') && /^[ -~]*$/.test(text)) return text;
  const octets = text.replace(/%([0-9A-Fa-f]{2})/g, (_, hex: string) => String.fromCharCode(parseInt(hex, 16)));
  return Buffer.from(octets, 'latin1').toString();
}
