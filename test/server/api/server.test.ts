import { once } from 'node:events';
import { createConnection } from 'node:net';
import { lstatSync } from 'node:fs';
import { describe, expect, test } from 'vitest';

import { TestApi } from '../../support/resize-api/resize-api.ts';
import { view } from '../../support/resize-api/view.ts';

const shim = new TestApi(view);

describe('the socket of the resize API', () => {
  test('the resize API continues to serve after clients that disconnect immediately', async () => {
    for (let index = 0; index < 8; index += 1) {
      const socket = createConnection(shim.path);
      await once(socket, 'connect');
      if (index % 2 === 0) socket.write('PRI');
      socket.destroy();
    }
    expect((await shim.client.call('ListPods', {}))['pods']).toHaveLength(1);
  });

  test('the socket has the configured mode, and another shim cannot replace it while the shim runs', async () => {
    expect((lstatSync(shim.path).mode & 0o777).toString(8)).toBe('600');
    await expect(shim.open(0o600)).rejects.toThrow(/already listens there; stop it or use another path$/);
    expect((await shim.client.call('ListPods', {}))['pods']).toHaveLength(1);
    await shim.api.close(0);
    shim.api = await shim.open(0o660);
    expect((lstatSync(shim.path).mode & 0o777).toString(8)).toBe('660');
  });
});
