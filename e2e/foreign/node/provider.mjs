// An OpenID Connect provider: `oidc-provider` as its documentation sets it up for APIs, with any name for a login.
// Whoever is called `staff…` is in the group `staff`. Prints its issuer.
import { createServer } from 'node:http';
import { Provider } from 'oidc-provider';

const port = Number(process.argv[2] ?? 0);
let handle = (request, response) => response.end();
const server = createServer((request, response) => handle(request, response));
server.listen(port, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    cookies: { keys: ['of the test'] },
    scopes: ['openid', 'offline_access', 'tools'],
    pkce: { required: () => true },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    extraTokenClaims: (_, token) => ({ groups: token.accountId?.startsWith('staff') ? ['staff'] : ['guests'] }),
    features: {
      devInteractions: { enabled: true },
      registration: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_, resource) => ({
          scope: 'tools',
          audience: resource,
          accessTokenFormat: 'jwt',
          accessTokenTTL: 300,
          jwt: { sign: { alg: 'RS256' } },
        }),
      },
    },
  });
  handle = provider.callback();
  console.log(JSON.stringify({ issuer }));
});
