// Azurite, the emulator that Microsoft publishes, with one account and one container: `azure.mjs FOLDER ACCOUNT KEY CONTAINER`.
// Prints its address once it answers.
import { createHmac } from 'node:crypto';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';

const [folder, account, key, container] = process.argv.slice(2);
const port = await new Promise((done) => {
  const probe = createServer().listen(0, '127.0.0.1', () => {
    const { port } = probe.address();
    probe.close(() => done(port));
  });
});
const listening = new Promise((done) => {
  console.log = (text) => String(text).includes('successfully listen') && done();
});
process.env.AZURITE_ACCOUNTS = `${account}:${key}`;
process.argv.splice(2, Infinity, '--blobPort', `${port}`, '--location', folder, '--skipApiVersionCheck', '--disableTelemetry', '--silent');
createRequire(import.meta.url)('azurite/dist/src/blob/main.js');
await listening;

const address = `http://127.0.0.1:${port}/${account}`;
const headers = { 'x-ms-date': new Date().toUTCString(), 'x-ms-version': '2023-11-03' };
const named = Object.entries(headers).map(([name, value]) => `${name}:${value}\n`).join('');
const words = `PUT${'\n'.repeat(12)}${named}/${account}/${account}/${container}\nrestype:container`;
const signature = createHmac('sha256', Buffer.from(key, 'base64')).update(words).digest('base64');
const made = await fetch(`${address}/${container}?restype=container`, {
  method: 'PUT', headers: { ...headers, Authorization: `SharedKey ${account}:${signature}` },
});
if (made.status !== 201) throw new Error(`no container: ${made.status} ${await made.text()}`);
process.stdout.write(`${address}\n`);
