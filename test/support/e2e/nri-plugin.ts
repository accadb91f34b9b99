import { connect, type Socket } from 'node:net';
import protobuf from 'protobufjs';

/**
 * The parts of NRI for a plugin that answers UpdateContainer (github.com/containerd/nri, pkg/api/api.proto), and of
 * ttrpc (github.com/containerd/ttrpc, request.proto).
 */
const proto = protobuf.parse(
  `syntax = "proto3";
  message Request { string service = 1; string method = 2; bytes payload = 3; }
  message Response { bytes payload = 2; }
  message RegisterPluginRequest { string plugin_name = 1; string plugin_idx = 2; }
  message ConfigureResponse { int32 events = 2; }
  message Container { string id = 1; }
  message UpdateContainerRequest { Container container = 2; }
  message OptionalInt64 { int64 value = 1; }
  message OptionalUInt64 { uint64 value = 1; }
  message LinuxMemory { OptionalInt64 limit = 1; }
  message LinuxCPU { OptionalUInt64 shares = 1; OptionalInt64 quota = 2; OptionalUInt64 period = 3; string cpus = 6; string mems = 7; }
  message LinuxResources { LinuxMemory memory = 1; LinuxCPU cpu = 2; map<string, string> unified = 6; }
  message LinuxContainerUpdate { LinuxResources resources = 1; }
  message ContainerUpdate { string container_id = 1; LinuxContainerUpdate linux = 2; }
  message UpdateContainerResponse { repeated ContainerUpdate update = 1; }`,
  { keepCase: true },
).root;

const encode = (name: string, message: object): Uint8Array => {
  const type = proto.lookupType(name);
  return type.encode(type.fromObject(message)).finish();
};
const decode = (name: string, bytes: Uint8Array): unknown => proto.lookupType(name).decode(bytes);

const RUNTIME_SERVICE = 'nri.pkg.api.v1alpha1.Runtime';
/** Connections that NRI multiplexes over its socket (pkg/net/multiplex): the plugin's service and containerd's. */
const PLUGIN_CONNECTION = 1;
const RUNTIME_CONNECTION = 2;
/** Connection and length. */
const TRUNK_HEADER = 8;
/** Length, stream, type and flags. */
const MESSAGE_HEADER = 10;
const REQUEST = 1;
const RESPONSE = 2;
/** Event 8 of NRI, UPDATE_CONTAINER. */
const UPDATE_CONTAINER = 1 << 7;

/** An NRI plugin of containerd: it answers the updates of some containers with other resources. */
export class NriPlugin {
  /** The resources that it chooses, by container id, as NRI's LinuxResources. Others get the requested ones. */
  readonly chooses = new Map<string, object>();
  readonly #socket: Socket;
  readonly #ready = Promise.withResolvers<undefined>();
  readonly #received = new Map<number, Buffer>();
  #trunk = Buffer.alloc(0);

  private constructor(path: string) {
    this.#socket = connect(path);
    this.#socket.on('error', (error) => this.#ready.reject(error));
    this.#socket.on('connect', () => {
      const payload = encode('RegisterPluginRequest', { plugin_name: 'chooser', plugin_idx: '10' });
      const request = encode('Request', { service: RUNTIME_SERVICE, method: 'RegisterPlugin', payload });
      this.#send(RUNTIME_CONNECTION, 1, REQUEST, request);
    });
    this.#socket.on('data', (data) => this.#receive(data));
  }

  /** Connects to containerd. Resolves when containerd asks the plugin about updates. */
  static async start(path = '/var/run/nri/nri.sock'): Promise<NriPlugin> {
    const plugin = new NriPlugin(path);
    await plugin.#ready.promise;
    return plugin;
  }

  close(): void {
    this.#socket.destroy();
  }

  #receive(data: Buffer): void {
    this.#trunk = Buffer.concat([this.#trunk, data]);
    while (this.#trunk.length >= TRUNK_HEADER) {
      const end = TRUNK_HEADER + this.#trunk.readUInt32BE(4);
      if (this.#trunk.length < end) return;
      this.#receiveOn(this.#trunk.readUInt32BE(0), this.#trunk.subarray(TRUNK_HEADER, end));
      this.#trunk = this.#trunk.subarray(end);
    }
  }

  #receiveOn(connection: number, data: Buffer): void {
    let rest = Buffer.concat([this.#received.get(connection) ?? Buffer.alloc(0), data]);
    while (rest.length >= MESSAGE_HEADER && rest.length >= MESSAGE_HEADER + rest.readUInt32BE(0)) {
      const end = MESSAGE_HEADER + rest.readUInt32BE(0);
      if (connection === PLUGIN_CONNECTION && rest.readUInt8(8) === REQUEST)
        this.#answer(rest.readUInt32BE(4), rest.subarray(MESSAGE_HEADER, end));
      rest = rest.subarray(end);
    }
    this.#received.set(connection, rest);
  }

  #answer(stream: number, request: Buffer): void {
    const { method, payload } = decode('Request', request) as { method: string; payload: Uint8Array };
    this.#send(PLUGIN_CONNECTION, stream, RESPONSE, encode('Response', { payload: this.#answerTo(method, payload) }));
    if (method === 'Synchronize') this.#ready.resolve(undefined);
  }

  #answerTo(method: string, payload: Uint8Array): Uint8Array {
    if (method === 'Configure') return encode('ConfigureResponse', { events: UPDATE_CONTAINER });
    if (method !== 'UpdateContainer') return new Uint8Array();
    const { container } = decode('UpdateContainerRequest', payload) as { container: { id: string } };
    const resources = this.chooses.get(container.id);
    const update = resources === undefined ? [] : [{ container_id: container.id, linux: { resources } }];
    return encode('UpdateContainerResponse', { update });
  }

  #send(connection: number, stream: number, type: number, message: Uint8Array): void {
    const head = Buffer.alloc(TRUNK_HEADER + MESSAGE_HEADER);
    head.writeUInt32BE(connection, 0);
    head.writeUInt32BE(MESSAGE_HEADER + message.length, 4);
    head.writeUInt32BE(message.length, TRUNK_HEADER);
    head.writeUInt32BE(stream, TRUNK_HEADER + 4);
    head.writeUInt8(type, TRUNK_HEADER + 8);
    this.#socket.write(Buffer.concat([head, message]));
  }
}
