/** Where and with which data a server for tests runs. */
export type StartOptions = {
  /** The port to listen on. Default: a free port. */
  port?: number;
  /** The folder of the data. Default: a new folder that is removed when the server stops. */
  data?: string;
};

/** A running development server. */
export type StartedServer = {
  /** The address of the API, such as `http://127.0.0.1:8080`. */
  url: string;
  /** The token of the development account. */
  token: string;
  /** The keys that verify the signatures of deliveries. */
  signingKeys: { current: string; next: string };
  /** Stops the server and resolves when its process has ended. */
  stop(): Promise<void>;
};

/**
 * Starts a development server in its own process, for the tests of an application. Deliveries to this machine
 * are allowed. The server also ends when this process ends. Rejects with the reason if the server does not
 * start.
 */
export function startServer(options?: StartOptions): Promise<StartedServer>;
