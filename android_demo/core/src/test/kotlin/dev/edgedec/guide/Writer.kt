package dev.edgedec.guide

import dev.edgedec.core.Decoder
import dev.edgedec.core.DecoderOptions
import dev.edgedec.core.Emission
import dev.edgedec.core.Figures
import dev.edgedec.core.Listener
import dev.edgedec.core.Request
import java.io.File

class Writer(bundle: File) : AutoCloseable {
    private val decoder = Decoder(DecoderOptions(maxContext = 1024)).apply { open(bundle) }

    /** Returns at once; both functions are called on the decoder's thread. */
    fun write(prompt: String, show: (String) -> Unit, done: (Figures?) -> Unit) =
        decoder.generate(Request(prompt, maxNewTokens = 64), object : Listener {
            override fun onTokens(tokens: List<Emission>) = show(tokens.joinToString("") { it.text })
            override fun onEnd(figures: Figures) = done(figures)
            override fun onError(message: String) = show("\n$message").also { done(null) }
        })

    fun stop() = decoder.cancel()

    override fun close() = decoder.close()
}
