import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import {
  Client,
  type ClientReadableStream,
  compressionAlgorithms,
  credentials,
  Metadata,
  type ServiceError,
} from '@grpc/grpc-js';
import { loadSync, type MethodDefinition } from '@grpc/proto-loader';
import protobuf from 'protobufjs';

type Service = Readonly<Record<string, MethodDefinition<object, object>>>;

const file = fileURLToPath(new URL('../../../proto/criresize/v1alpha1/resize.proto', import.meta.url));
const options = { keepCase: true, longs: Number, enums: String, oneofs: true };
const service = loadSync(file, options)['criresize.v1alpha1.ResizeService'] as unknown as Service;

/** The fields of answers that tests read. Any may be present. */
export interface Answer {
  readonly [field: string]: Answer;
}

/** A plain gRPC client of the resize API, created from its .proto file like any other client. */
export class ResizeClient {
  readonly #client: Client;

  /** @param compression compresses all requests. None by default */
  constructor(path: string, compression = compressionAlgorithms.identity) {
    this.#client = new Client(`unix:${path}`, credentials.createInsecure(), {
      'grpc.use_local_subchannel_pool': 1,
      'grpc.default_compression_algorithm': compression,
    });
  }

  /** Rejects with grpc-js's ServiceError. */
  call(method: string, request: object, deadline?: number): Promise<Answer> {
    const { path, requestSerialize, responseDeserialize } = definition(method);
    return new Promise((resolve, reject) => {
      this.#client.makeUnaryRequest(
        path,
        requestSerialize,
        responseDeserialize,
        request,
        new Metadata(),
        deadline === undefined ? {} : { deadline },
        (error, response) => (error === null ? resolve(response as Answer) : reject(error)),
      );
    });
  }

  /** Starts a call that can be cancelled. The answer rejects as {@link call} does. */
  cancellable(method: string, request: object): { readonly answer: Promise<Answer>; readonly cancel: () => void } {
    const { path, requestSerialize, responseDeserialize } = definition(method);
    const { promise: answer, resolve, reject } = Promise.withResolvers<Answer>();
    const done = (error: ServiceError | null, response?: object): void =>
      error === null ? resolve(response as Answer) : reject(error);
    const call = this.#client.makeUnaryRequest(path, requestSerialize, responseDeserialize, request, done);
    return { answer, cancel: () => call.cancel() };
  }

  /** Sends bytes unchanged. */
  raw(method: string, bytes: Buffer): Promise<Buffer> {
    const same = (value: Buffer): Buffer => value;
    return new Promise((resolve, reject) => {
      this.#client.makeUnaryRequest(definition(method).path, same, same, bytes, (error, response) =>
        error === null ? resolve(response ?? Buffer.alloc(0)) : reject(error),
      );
    });
  }

  watch(request: object): ClientReadableStream<Answer> {
    const { path, requestSerialize, responseDeserialize } = definition('WatchResizes');
    const deserialize = (bytes: Buffer): Answer => responseDeserialize(bytes) as Answer;
    return this.#client.makeServerStreamRequest(path, requestSerialize, deserialize, request);
  }

  close(): void {
    this.#client.close();
  }
}

function definition(method: string): MethodDefinition<object, object> {
  const found = service[method];
  if (found === undefined) throw new Error(`no method ${method}`);
  return found;
}

export interface Refusal {
  readonly code: number;
  readonly message: string;
  readonly reason: string;
  readonly about: Readonly<Record<string, string>>;
}

/** Returns the status and ErrorInfo of a rejected call. Rejects if the call succeeds. */
export async function refusal(call: Promise<unknown>): Promise<Refusal> {
  const error = await call.then(
    () => undefined,
    (reason: unknown) => reason as ServiceError,
  );
  if (error === undefined) throw new Error('the call was not rejected');
  return refusalOf(error);
}

/** The types of google/rpc's .proto files, as any client would parse them. */
function detailTypes(): { status: protobuf.Type; info: protobuf.Type } {
  const root = new protobuf.Root();
  const any = 'syntax = "proto3"; package google.protobuf; message Any { string type_url = 1; bytes value = 2; }';
  for (const source of [any, googleProto('status'), googleProto('error_info')]) protobuf.parse(source, root);
  return { status: root.lookupType('google.rpc.Status'), info: root.lookupType('google.rpc.ErrorInfo') };
}

const googleProto = (name: string): string =>
  readFileSync(new URL(`../../../proto/google/rpc/${name}.proto`, import.meta.url), 'utf8').replace(/^import .*$/m, '');

export function refusalOf(error: ServiceError): Refusal {
  const [details] = error.metadata.get('grpc-status-details-bin');
  if (!Buffer.isBuffer(details)) throw new Error(`no ErrorInfo with ${error.message}`);
  const { status, info: infoType } = detailTypes();
  const [any] = (status.decode(details) as unknown as { details: { value: Uint8Array }[] }).details;
  const info = infoType.toObject(infoType.decode(any?.value ?? new Uint8Array())) as {
    reason: string;
    domain: string;
    metadata?: Record<string, string>;
  };
  if (info.domain !== 'cri-resize-shim.io') throw new Error(`a strange domain: ${info.domain}`);
  return { code: error.code, message: error.details, reason: info.reason, about: { ...info.metadata } };
}
