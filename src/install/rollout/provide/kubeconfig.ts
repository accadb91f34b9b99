import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isMap, parseDocument } from 'yaml';

/**
 * Writes the kubeconfig of the shim for the host, with the token and the certificate of a mounted secret: the shim is no pod, so it has
 * no token of its own. Only root may read it. Rejects if a file cannot be read or written.
 * @param from folder with `token` and `ca.crt`
 */
export async function provideKubeconfig(from: string, to: string, environment = process.env): Promise<void> {
  const { KUBERNETES_SERVICE_HOST: host = '', KUBERNETES_SERVICE_PORT: port = '443' } = environment;
  if (host === '') throw new Error('KUBERNETES_SERVICE_HOST is not set: the address of the API server is unknown');
  const [token, ca] = [await readFile(join(from, 'token'), 'utf8'), await readFile(join(from, 'ca.crt'))];
  const name = 'cri-resize-shim';
  const config = {
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': name,
    contexts: [{ name, context: { cluster: name, user: name } }],
    clusters: [
      {
        name,
        cluster: {
          server: `https://${host.includes(':') ? `[${host}]` : host}:${port}`,
          'certificate-authority-data': ca.toString('base64'),
        },
      },
    ],
    users: [{ name, user: { token: token.trim() } }],
  };
  await rm(to, { force: true });
  await writeFile(to, `${JSON.stringify(config, undefined, 2)}\n`, { mode: 0o600, flag: 'wx' });
}

/**
 * Returns a configuration of the shim with the name of its node, unless it has one: with credentials the shim asks for the pods of this
 * node, whose name may differ from the host name. A text that is not a mapping is returned unchanged; the shim reports it.
 */
export function withNodeName(text: string, nodeName: string): string {
  const document = parseDocument(text);
  if (document.errors.length > 0 || !isMap(document.contents) || document.has('nodeName')) return text;
  document.set('nodeName', nodeName);
  return document.toString();
}
