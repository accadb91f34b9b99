import type { KeyObject } from 'node:crypto';
import { createHash, generateKeyPairSync, randomBytes, sign } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { createServer } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { parseAllDocuments } from 'yaml';

/** The fields of an object of deploy/rbac.yaml that tests read. */
interface Manifest {
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
  readonly rules?: readonly {
    readonly apiGroups: readonly string[];
    readonly resources: readonly string[];
    readonly verbs: readonly string[];
  }[];
  readonly roleRef?: { readonly kind: string; readonly name: string };
  readonly subjects?: readonly { readonly kind: string; readonly name: string; readonly namespace: string }[];
}

export const manifests = parseAllDocuments(readFileSync('deploy/rbac.yaml', 'utf8')).map(
  (document) => document.toJS() as Manifest,
);

/** The rights of the shim's service account: `list pods`, `create events.events.k8s.io`. */
export const rights: ReadonlySet<string> = new Set(
  manifests
    .flatMap(({ rules = [] }) => rules)
    .flatMap(({ apiGroups, resources, verbs }) =>
      apiGroups.flatMap((group) =>
        resources.flatMap((resource) =>
          verbs.map((verb) => `${verb} ${group === '' ? resource : `${resource}.${group}`}`),
        ),
      ),
    ),
);

/** A pod in the API server. */
export interface ServedPod {
  readonly uid: string;
  readonly name: string;
  readonly namespace: string;
  readonly nodeName: string;
  readonly annotations: Readonly<Record<string, string>>;
  readonly deletionTimestamp?: string;
  readonly ownerReferences?: readonly object[];
  readonly spec?: object;
  readonly status?: object;
}

export interface PostedEvent {
  readonly apiVersion: string;
  readonly metadata: { readonly name: string; readonly namespace: string };
  readonly type: string;
  readonly reason: string;
  readonly note: string;
  readonly regarding: { readonly uid: string; readonly name: string; readonly namespace: string };
  readonly [field: string]: unknown;
}

export interface Asked {
  readonly method: string;
  readonly path: string;
  readonly query: Readonly<Record<string, string>>;
  readonly accept: string | undefined;
}

type Kind = 'list' | 'watch' | 'event' | 'node';
interface Change {
  readonly version: number;
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
  readonly pod: ServedPod;
}

/**
 * Replaces the Kubernetes API server: it lists pods of a node in pages, watches them, and accepts events, for clients
 * with the rights of deploy/rbac.yaml.
 */
export class FakeApiServer {
  readonly token = 'hunter2-token';
  readonly asked: Asked[] = [];
  readonly events: PostedEvent[] = [];
  /** The allocatable of each node, by its name. */
  readonly nodes = new Map<string, object>();
  readonly #happened = new EventEmitter();
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #watches = new Set<{ response: ServerResponse; node: string }>();
  readonly #pods = new Map<string, ServedPod>();
  readonly #changes: Change[] = [];
  #version = 100;
  #oldest = 0;
  #port = 0;
  /** Started lists: the remaining items of each, by its token. */
  readonly #pages = new Map<string, readonly ServedPod[]>();
  #refusals: { kind: Kind; status: number; left: number; headers: Record<string, string>; inPath: string }[] = [];
  #lostEvents = 0;
  #expiresBy: 'status' | 'event' = 'status';

  constructor(readonly tls?: { server: TestCertificate; client?: TestCertificate }) {
    const answer = (request: IncomingMessage, response: ServerResponse): void => void this.#answer(request, response);
    this.#server =
      tls === undefined
        ? createServer(answer)
        : createTlsServer(
            {
              cert: tls.server.certificate,
              key: tls.server.key,
              ...(tls.client && { ca: tls.client.certificate, requestCert: true, rejectUnauthorized: true }),
            },
            answer,
          );
    this.#happened.setMaxListeners(0);
    this.#server.on('connection', (socket: Socket) => {
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket));
    });
  }

  /** Starts listening, on the same port after {@link stop}. */
  async start(): Promise<this> {
    this.#server.listen(this.#port, '127.0.0.1');
    await once(this.#server, 'listening');
    this.#port = (this.#server.address() as AddressInfo).port;
    return this;
  }

  /** Behaves as if the server had died: it does not listen, and all connections are cut. */
  async stop(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.cut();
    await closed;
  }

  /** Reserves a port for a server that starts later. */
  async reserve(): Promise<this> {
    await this.start();
    await this.stop();
    return this;
  }

  /** Cuts all connections. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  get url(): string {
    return `${this.tls === undefined ? 'http' : 'https'}://127.0.0.1:${this.#port}`;
  }

  /** Writes a kubeconfig for this server. */
  kubeconfig(path: string, user: object = { token: this.token }): string {
    const ca = this.tls && Buffer.from(this.tls.server.certificate).toString('base64');
    const cluster = {
      server: this.url,
      ...(ca === undefined ? { 'insecure-skip-tls-verify': true } : { 'certificate-authority-data': ca }),
    };
    const config = {
      apiVersion: 'v1',
      kind: 'Config',
      'current-context': 'test',
      contexts: [{ name: 'test', context: { cluster: 'test', user: 'shim' } }],
      clusters: [{ name: 'test', cluster }],
      users: [{ name: 'shim', user }],
    };
    writeFileSync(path, JSON.stringify(config), { mode: 0o600 });
    return path;
  }

  /** Adds or changes a pod. */
  set(pod: ServedPod): void {
    this.#change({ version: (this.#version += 1), type: this.#pods.has(pod.uid) ? 'MODIFIED' : 'ADDED', pod });
    this.#pods.set(pod.uid, pod);
  }

  /** Does the same as `kubectl annotate --overwrite`. undefined removes an annotation. */
  annotate(uid: string, annotations: Readonly<Record<string, string | undefined>>): void {
    const pod = this.#pods.get(uid)!;
    const all = Object.entries({ ...pod.annotations, ...annotations }).filter(([, text]) => text !== undefined);
    this.set({ ...pod, annotations: Object.fromEntries(all) as Record<string, string> });
  }

  delete(uid: string): void {
    const pod = this.#pods.get(uid)!;
    this.#pods.delete(uid);
    this.#change({ version: (this.#version += 1), type: 'DELETED', pod });
  }

  /** Other pods of the cluster change: the version increases, and watches get only a bookmark. */
  bookmark(): void {
    this.#version += 10;
    for (const { response } of this.#watches) {
      const object = { kind: 'Pod', apiVersion: 'v1', metadata: { resourceVersion: String(this.#version) } };
      response.write(`${JSON.stringify({ type: 'BOOKMARK', object })}\n`);
    }
  }

  /** Simulates a restored backup: the server has lost its last versions, and all watches end. */
  goBack(version: number): void {
    this.#version = version;
    this.endWatches();
  }

  /** Sends a text to all watches. */
  write(text: string): void {
    for (const { response } of this.#watches) response.write(text);
  }

  /** Ends all watches, as at their timeout. */
  endWatches(): void {
    for (const { response } of this.#watches) response.end();
  }

  /** Forgets all changes: watches from before get 410, as an HTTP status or as an event. */
  expire(by: 'status' | 'event'): void {
    this.#expiresBy = by;
    this.#version += 1;
    this.#oldest = this.#version;
    this.#pages.clear();
  }

  /** Answers the next requests of a kind, or only those with a text in their path, with this status. */
  refuse(kind: Kind, status: number, times = Infinity, headers: Record<string, string> = {}, inPath = ''): void {
    const others = this.#refusals.filter((other) => other.kind !== kind);
    this.#refusals = [...others, { kind, status, left: times, headers, inPath }];
  }

  /** Creates the next events, and cuts their connections in place of an answer. */
  loseNextEvents(count: number): void {
    this.#lostEvents = count;
  }

  accept(kind: Kind): void {
    this.#refusals = this.#refusals.filter((other) => other.kind !== kind);
  }

  get watching(): number {
    return this.#watches.size;
  }

  of(kind: Kind): readonly Asked[] {
    return this.asked.filter((request) => kindOf(request) === kind);
  }

  /** Waits until a condition holds. It is checked after each activity of the server. */
  async until(holds: () => boolean): Promise<void> {
    while (!holds()) await once(this.#happened, 'activity');
  }

  /** Returns the nth event with this reason, now or when it arrives. */
  async event(reason: string, number = 1): Promise<PostedEvent> {
    const found = (): PostedEvent | undefined => this.events.filter((event) => event.reason === reason)[number - 1];
    await this.until(() => found() !== undefined);
    return found()!;
  }

  #change(change: Change): void {
    this.#changes.push(change);
    for (const { response, node } of this.#watches) if (change.pod.nodeName === node) writeChange(response, change);
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url!, this.url);
    const query = Object.fromEntries(url.searchParams);
    const asked = { method: request.method!, path: url.pathname, query, accept: request.headers.accept };
    this.asked.push(asked);
    const kind = kindOf(asked);
    const refusal = this.#refusals.find(
      (other) => other.kind === kind && other.left > 0 && url.pathname.includes(other.inPath),
    );
    const isKnown = request.headers.authorization === `Bearer ${this.token}` || this.tls?.client !== undefined;
    const right = rightFor(asked, kind);
    if (!isKnown) sendStatus(response, 401, 'Unauthorized');
    else if (!rights.has(right)) sendStatus(response, 403, `deploy/rbac.yaml does not grant: ${right}`);
    else if (refusal !== undefined) {
      refusal.left -= 1;
      sendStatus(response, refusal.status, `refused with ${refusal.status}`, refusal.headers);
    } else if (kind === 'event') await this.#take(request, response);
    else if (kind === 'watch') this.#watch(response, query);
    else if (kind === 'node') this.#node(response, url.pathname);
    else this.#list(response, query);
    this.#happened.emit('activity');
  }

  #list(response: ServerResponse, query: Readonly<Record<string, string>>): void {
    const all = [...this.#pods.values()].filter(({ nodeName }) => nodeName === nodeOf(query));
    const rest = query['continue'] === undefined ? all : this.#pages.get(query['continue']);
    if (rest === undefined) {
      sendStatus(response, 410, 'the provided continue parameter is too old');
      return;
    }
    if (Number(query['resourceVersion'] ?? 0) > this.#version) {
      sendStatus(response, 504, 'Timeout: Too large resource version: 1, current: 0');
      return;
    }
    const limit = Number(query['limit'] ?? Infinity);
    const next = rest.length > limit ? `page-${this.#pages.size}-${this.#version}` : '';
    if (next !== '') this.#pages.set(next, rest.slice(limit));
    const metadata = { resourceVersion: String(this.#version), continue: next };
    const items = rest.slice(0, limit).map((pod) => objectOf(pod, this.#version));
    sendJson(response, 200, { kind: 'PodList', apiVersion: 'v1', metadata, items });
  }

  #node(response: ServerResponse, path: string): void {
    const name = path.slice(NODES.length);
    const allocatable = this.nodes.get(name);
    if (allocatable === undefined) sendStatus(response, 404, `nodes "${name}" not found`);
    else sendJson(response, 200, { kind: 'Node', apiVersion: 'v1', metadata: { name }, status: { allocatable } });
  }

  #watch(response: ServerResponse, query: Readonly<Record<string, string>>): void {
    const since = Number(query['resourceVersion']);
    const gone = { kind: 'Status', status: 'Failure', code: 410, reason: 'Expired', message: 'too old' };
    if (since < this.#oldest && this.#expiresBy === 'status') {
      sendStatus(response, 410, 'too old resource version');
      return;
    }
    response.writeHead(200, { 'content-type': 'application/json' });
    response.flushHeaders();
    if (since < this.#oldest) {
      response.end(`${JSON.stringify({ type: 'ERROR', object: gone })}\n`);
      return;
    }
    const watch = { response, node: nodeOf(query) };
    for (const change of this.#changes)
      if (change.version > since && change.pod.nodeName === watch.node) writeChange(response, change);
    this.#watches.add(watch);
    response.on('close', () => {
      this.#watches.delete(watch);
      this.#happened.emit('activity');
    });
  }

  async #take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let text = '';
    for await (const chunk of request.setEncoding('utf8') as AsyncIterable<string>) text += chunk;
    const event = JSON.parse(text) as PostedEvent;
    if (this.events.some(({ metadata }) => metadata.name === event.metadata.name)) {
      sendStatus(response, 409, `events.events.k8s.io "${event.metadata.name}" already exists`);
      return;
    }
    this.events.push(event);
    if (this.#lostEvents === 0) sendJson(response, 201, event);
    else {
      this.#lostEvents -= 1;
      response.destroy();
    }
  }
}

const NODES = '/api/v1/nodes/';

function kindOf({ method, path, query }: Asked): Kind {
  if (method === 'POST') return 'event';
  if (path.startsWith(NODES)) return 'node';
  return query['watch'] === '1' ? 'watch' : 'list';
}

/** Returns the right that a request needs, from its path. */
function rightFor({ path }: Asked, kind: Kind): string {
  if (kind === 'event')
    return /^\/apis\/events\.k8s\.io\/v1\/namespaces\/[^/]+\/events$/.test(path)
      ? 'create events.events.k8s.io'
      : `create ${path}`;
  if (kind === 'node') return 'get nodes';
  return `${kind} ${path === '/api/v1/pods' ? 'pods' : path}`;
}

const nodeOf = (query: Readonly<Record<string, string>>): string =>
  /^spec\.nodeName=(.*)$/.exec(query['fieldSelector'] ?? '')?.[1] ?? '';

/** An object in the order of the API server's fields. */
const objectOf = (
  { nodeName, spec, status, name, namespace, uid, ...metadata }: ServedPod,
  version: number,
): object => ({
  metadata: {
    name,
    namespace,
    uid,
    resourceVersion: String(version),
    ...metadata,
    managedFields: [{ manager: 'kubelet', operation: 'Update' }],
  },
  spec: { nodeName, containers: [], ...spec },
  status,
});

function writeChange(response: ServerResponse, { type, pod, version }: Change): void {
  const object = { kind: 'Pod', apiVersion: 'v1', ...objectOf(pod, version) };
  const line = Buffer.from(`${goJson({ type, object })}\n`);
  // Sends two pieces, because a line may arrive in parts.
  response.write(line.subarray(0, 20));
  response.write(line.subarray(20));
}

function sendJson(response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers });
  response.end(goJson(body));
}

/** Encodes as Go does, which escapes the characters of HTML. */
const goJson = (value: unknown): string =>
  JSON.stringify(value).replaceAll('<', '\\u003c').replaceAll('>', '\\u003e').replaceAll('&', '\\u0026');

function sendStatus(response: ServerResponse, code: number, message: string, headers?: Record<string, string>): void {
  sendJson(response, code, { kind: 'Status', apiVersion: 'v1', status: 'Failure', code, message }, headers);
}

/** A certificate that only tests trust, and its key, both in PEM. */
export interface TestCertificate {
  readonly certificate: string;
  readonly key: string;
}

/**
 * Creates an X.509 certificate (RFC 5280) in DER with the parts that TLS needs: self-signed, for `localhost` and an
 * IPv4 address, valid for one day.
 */
export function makeCertificate(name: string, address = '127.0.0.1'): TestCertificate {
  const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const algorithm = sequence(oid('2a8648ce3d040302'));
  const subject = sequence(set(sequence(oid('550403'), der(0x0c, Buffer.from(name)))));
  const now = Date.now();
  const signed = sequence(
    der(0xa0, integer(Buffer.from([2]))),
    integer(Buffer.concat([Buffer.from([1]), randomBytes(8)])),
    algorithm,
    subject,
    sequence(utcTime(now - 3_600_000), utcTime(now + 86_400_000)),
    subject,
    publicKey.export({ type: 'spki', format: 'der' }),
    der(0xa3, sequence(alternativeNames(address), isAuthority(), keyIdentifier(publicKey))),
  );
  const signature = sign('sha256', signed, privateKey);
  const whole = sequence(signed, algorithm, der(0x03, Buffer.from([0]), signature));
  const lines = whole.toString('base64').match(/.{1,64}/g)!;
  return {
    certificate: ['-----BEGIN CERTIFICATE-----', ...lines, '-----END CERTIFICATE-----', ''].join('\n'),
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }) as string,
  };
}

function der(tag: number, ...parts: Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  if (length < 128) return Buffer.concat([Buffer.from([tag, length]), content]);
  const bytes = length < 256 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...bytes]), content]);
}

const sequence = (...parts: Buffer[]): Buffer => der(0x30, ...parts);
const set = (...parts: Buffer[]): Buffer => der(0x31, ...parts);
const integer = (value: Buffer): Buffer => der(0x02, value);
const oid = (hex: string): Buffer => der(0x06, Buffer.from(hex, 'hex'));
const octets = (...parts: Buffer[]): Buffer => der(0x04, ...parts);
const extension = (id: string, content: Buffer): Buffer => sequence(oid(id), octets(content));
const utcTime = (at: number): Buffer =>
  der(0x17, Buffer.from(`${new Date(at).toISOString().slice(2, 19).replace(/[-T:]/g, '')}Z`));
const alternativeNames = (address: string): Buffer =>
  extension(
    '551d11',
    sequence(der(0x82, Buffer.from('localhost')), der(0x87, Buffer.from(address.split('.').map(Number)))),
  );
const isAuthority = (): Buffer => extension('551d13', sequence(der(0x01, Buffer.from([0xff]))));
const keyIdentifier = (key: KeyObject): Buffer =>
  extension(
    '551d0e',
    octets(
      createHash('sha1')
        .update(key.export({ type: 'spki', format: 'der' }))
        .digest(),
    ),
  );
