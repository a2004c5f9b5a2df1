"""A TCP proxy on loopback whose network can fail: it holds bytes back, delays them, or cuts connections."""
import asyncio
import threading

CHUNK_BYTES = 1 << 16


class ProxyLoop:
    """The thread that all proxies of a test share."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def close(self):
        self.run(self._cancel_all())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    @staticmethod
    async def _cancel_all():
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Proxy:
    """Passes connections on to a port of loopback. `host` and `port` are where it listens."""

    def __init__(self, proxies, target_port, host="127.0.0.1"):
        self._proxies, self._target_port, self.host = proxies, target_port, host
        self._writers = set()
        self._delay_s, self._is_cut = 0.0, False
        proxies.run(self._listen())

    async def _listen(self):
        self._passes = asyncio.Event()
        self._passes.set()
        self._server = await asyncio.start_server(self._connected, self.host, 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _connected(self, client_reader, client_writer):
        if self._is_cut:
            client_writer.transport.abort()
            return
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            client_writer.transport.abort()
            return
        pair = {client_writer, server_writer}
        self._writers |= pair
        try:
            await asyncio.gather(self._copy(client_reader, server_writer), self._copy(server_reader, client_writer))
        finally:
            self._writers -= pair

    async def _copy(self, reader, writer):
        try:
            while chunk := await reader.read(CHUNK_BYTES):
                if self._delay_s:
                    await asyncio.sleep(self._delay_s)
                await self._passes.wait()
                writer.write(chunk)
                await writer.drain()
        except OSError:
            pass
        finally:
            # The end of a connection is also held back.
            await self._passes.wait()
            writer.close()

    async def _set(self, delay_s=0.0, is_cut=False, holds=False):
        self._delay_s, self._is_cut = delay_s, is_cut
        self._passes.clear() if holds else self._passes.set()
        if is_cut:
            for writer in self._writers:
                writer.transport.abort()

    def hold(self):
        """Nothing passes; connections stay. What was sent meanwhile arrives later."""
        self._proxies.run(self._set(holds=True))

    def delay(self, seconds):
        self._proxies.run(self._set(delay_s=seconds))

    def cut(self):
        """Connections are reset, also new ones."""
        self._proxies.run(self._set(is_cut=True))

    def heal(self):
        self._proxies.run(self._set())

    def close(self):
        async def close():
            self._server.close()
            await self._set(is_cut=True)

        self._proxies.run(close())
