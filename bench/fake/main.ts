import { loadPackageDefinition, Server, ServerCredentials, type ServiceClientConstructor } from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { MiB } from '../../src/core/quantities/sizes.ts';
import { repositoryFile } from '../built-file.ts';
import { annotationsOf, IMAGE_ID, imageOf, labelsOf } from '../containerd/records.ts';
import { containers } from '../containerd/stored-node.ts';

/**
 * A runtime that has only containers. It answers Version, and ListContainers from memory, by filter. It builds and
 * encodes the message for each call like a real runtime. Any other call is Unimplemented. Argument: its socket.
 */

interface Request {
  readonly filter: { readonly id: string } | null;
}

/** ContainerState: running. */
const RUNNING = 1;

const all = containers.map((container) => ({
  id: container.id,
  pod_sandbox_id: container.pod.id,
  metadata: { name: container.name, attempt: 0 },
  image: { image: IMAGE_ID, user_specified_image: imageOf(container) },
  image_ref: IMAGE_ID,
  state: RUNNING,
  created_at: '1750000000000000000',
  labels: labelsOf(container),
  annotations: annotationsOf(),
}));

function find({ filter }: Request): typeof all {
  const id = filter?.id ?? '';
  return id === '' ? all : all.filter((container) => container.id.startsWith(id));
}

const loaded = loadPackageDefinition(
  loadSync(repositoryFile('bench/fake/runtime.proto'), { keepCase: true, longs: String, defaults: true }),
);
const runtime = loaded as unknown as { runtime: { v1: { RuntimeService: ServiceClientConstructor } } };
const server = new Server({ 'grpc.max_send_message_length': 16 * MiB });
server.addService(runtime.runtime.v1.RuntimeService.service, {
  Version: (_call: object, done: (error: null, answer: Readonly<Record<string, string>>) => void) =>
    done(null, { version: '0.1.0', runtime_name: 'fake', runtime_version: '0', runtime_api_version: 'v1' }),
  ListContainers: (
    call: { request: Request },
    done: (error: null, answer: { readonly containers: typeof all }) => void,
  ) => done(null, { containers: find(call.request) }),
});
server.bindAsync(`unix:${process.argv[2] ?? ''}`, ServerCredentials.createInsecure(), (error) => {
  if (error !== null) throw error;
});
// The pipe of the process that started this one. The runtime ends with it.
process.stdin.resume().on('end', () => process.exit(0));
