import asyncio, time
from microagents import Request, Role
from tests.benchmarks.asks import Double
class Leaf2(Request[int], frozen=True):
    number: int
class LeafRole(Role):
    async def leaf(self, r: Leaf2) -> int: return r.number
class Mid(Request[int], frozen=True):
    number: int
    fan: int = 1
class MidRole(Role):
    asks = (Double, Leaf2)
    async def mid(self, r: Mid) -> int:
        async def one(k):
            a = await self.ask(Double(number=k)); return await self.ask(Leaf2(number=a))
        x = await asyncio.gather(*(one(k) for k in range(r.fan)))
        return x[0]
class Go(Request[float], frozen=True):
    n: int
    fan: int
class Top(Role):
    asks = (Mid,)
    async def go(self, r: Go) -> float:
        t=time.perf_counter()
        for k in range(r.n): await self.ask(Mid(number=k, fan=r.fan))
        return (time.perf_counter()-t)/r.n
