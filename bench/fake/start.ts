import type { Children } from '../children.ts';
import { builtFile } from '../built-file.ts';
import { connectWhenThere } from '../sockets.ts';

/** Starts the fake runtime; its socket, when it answers. */
export async function startFake(children: Children): Promise<string> {
  const socket = children.path('fake.sock');
  const child = children.spawn('fake', process.execPath, [builtFile('tools/bench-fake.js'), socket]);
  const connection = await child.until(connectWhenThere(socket));
  connection.close();
  return socket;
}
