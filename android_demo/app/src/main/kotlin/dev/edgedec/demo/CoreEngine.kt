package dev.edgedec.demo

import dev.edgedec.core.Decoder
import dev.edgedec.core.DecoderOptions
import dev.edgedec.core.Listener
import dev.edgedec.core.Request
import dev.edgedec.core.State
import java.io.File

/** The decoder on ONNX Runtime; it opens one bundle. */
class CoreEngine(threads: Int?) : Engine {
    private val decoder = Decoder(DecoderOptions(threads = threads, memory = SharedKv))

    @Volatile private var asked: File? = null

    /** It is opening as soon as it was asked to, also before its thread has begun. */
    override val state: State
        get() = decoder.state.let { now -> asked?.takeIf { now is State.Closed }?.let { State.Opening(it) } ?: now }

    override fun open(folder: File) {
        asked = folder
        decoder.open(folder)
    }

    override fun generate(request: Request, listener: Listener) = decoder.generate(request, listener)

    override fun cancel() = decoder.cancel()

    override fun close() {
        asked = null
        decoder.close()
        decoder.join()
    }
}
