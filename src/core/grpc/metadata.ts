/** What a name consists of, and a value that is text (PROTOCOL-HTTP2.md of grpc, Header-Name and ASCII-Value). */
const NAME = /^[0-9a-z_.-]+$/;
const TEXT = /^[ -~]*$/;

export type MetadataValue = string | Buffer;

const isBinary = (name: string): boolean => name.endsWith('-bin');

/**
 * The metadata of a call: names in lower case and their values, in the order of the header fields that carry them. A name may be
 * repeated. The values of a name that ends in `-bin` are bytes, which header fields carry in base64. All others are printable ASCII.
 */
export class Metadata {
  /** As received: a short field of bytes may have thousands of values, and each would be sent with its name. */
  readonly #fields: (readonly [name: string, text: string])[] = [];

  /** Returns the metadata of header fields in the form of node:http2, which is also that of grpc-js's `toHttp2Headers`. */
  static ofHeaders(headers: Readonly<Record<string, number | string | readonly string[] | undefined>>): Metadata {
    const metadata = new Metadata();
    for (const [name, values = []] of Object.entries(headers))
      for (const value of [values].flat()) metadata.add(name, String(value));
    return metadata;
  }

  /** Adds what a header field carries. Returns false, and adds nothing, if gRPC allows no such name or value. */
  add(name: string, text: string): boolean {
    if (!NAME.test(name) || !TEXT.test(text)) return false;
    this.#fields.push([name, text]);
    return true;
  }

  /** Returns the values of a name. */
  get(name: string): MetadataValue[] {
    return this.#fields.filter(([other]) => other === name).flatMap(([, text]) => valuesIn(name, text));
  }

  /** Returns names and values in order. */
  pairs(): readonly (readonly [name: string, value: MetadataValue])[] {
    return this.#fields.flatMap(([name, text]) => valuesIn(name, text).map((value) => [name, value] as const));
  }

  /** Returns the header fields that carry it, as received. */
  fields(): readonly (readonly [name: string, text: string])[] {
    return this.#fields;
  }
}

/** Returns the values of a header field: several values share a field of bytes, separated by commas. */
const valuesIn = (name: string, text: string): MetadataValue[] =>
  isBinary(name) ? text.split(',').map((one) => Buffer.from(one.trim(), 'base64')) : [text];
